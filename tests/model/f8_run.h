// A small FP8 training on the CPU, for tests: its model, the layers that take FP8 in it, and a run with scales.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/train/f8_scales.h"
#include "tests/model/harness.h"

namespace coda::test {

/// Rows of all matrices are whole groups of 16 FP8 elements.
inline ModelConfig small_model() {
    ModelConfig model = tiny_model();
    model.hidden_size = 32;
    model.intermediate_size = 64;
    model.num_attention_heads = 2;
    model.num_key_value_heads = 1;
    model.head_dim = 16;
    model.vocab_size = 48;
    return model;
}

inline constexpr std::int64_t kBatch = 2, kSeqLen = 16;

/// Embeddings of RMS 1, and branches that add less than half of it, as in a trained model: where branches are as large
/// as the stream, a layer sends errors on enlarged, bf16's too.
inline textbook::Weights small_weights() {
    constexpr double kGain = 0.4;
    textbook::Weights weights = textbook::random_weights(small_model(), 7, kGain);
    const double to_one = std::sqrt(static_cast<double>(small_model().hidden_size)) / kGain;
    for (double& value : weights.at("model.embed_tokens.weight")) value *= to_one;
    return weights;
}

inline constexpr PrecisionConfig kFirstBf16{.has_fp8 = true, .bf16_first_layers = 1};
inline constexpr PrecisionConfig kLastBf16{.has_fp8 = true, .bf16_last_layers = 1};

inline std::vector<textbook::Batch> batches_of(std::uint64_t seed, std::size_t number = 1) {
    std::vector<textbook::Batch> batches;
    for (std::size_t i = 0; i < number; ++i)
        batches.push_back(random_batch(small_model(), kBatch, kSeqLen, seed + 100 * i));
    return batches;
}

/// Training that makes samples, whose plan has the flat working copy that generation reads.
inline constexpr PassSet kWithGeneration = kAllPasses | passes_of(Mode::generate);

/// A run with its scales, as the trainer begins it.
struct F8Run : ModelRun {
    explicit F8Run(const PrecisionConfig& precision, Recompute recompute = Recompute::none, PassSet passes = kAllPasses,
                   const ModelConfig& of = small_model(), std::int64_t chunks = 1)
        : ModelRun(of,
                   {.batch = kBatch,
                    .seq_len = kSeqLen,
                    .chunks = chunks,
                    .recompute = recompute,
                    .passes = passes,
                    .generation = {.batch = passes.has(Pass::decode) ? 1 : 0, .context = kSeqLen},
                    .gemms = precision},
                   kMixedBf16),
          precision_(precision) {}

    void begin(const std::vector<textbook::Batch>& batches, const textbook::Weights& weights = small_weights()) {
        start();
        set_weights(weights);
        scales.emplace(*executor, schedules, precision_);
        scales->load(nullptr);
        if (scales->needs_calibration()) {
            scales->calibrate([&] { step(batches); });
        }
    }

    /// A whole optimizer step; returns the loss.
    double train(std::int64_t t, const std::vector<textbook::Batch>& batches) {
        const double loss = step(batches);
        update(t, 1e-2, 0.9, 0.95);
        return loss;
    }

    std::vector<std::uint8_t> codes(const View& view) {
        std::vector<std::uint8_t> result(static_cast<std::size_t>(view.bytes()));
        executor->download(view, result.data());
        return result;
    }

    std::optional<F8Scales> scales;

  private:
    PrecisionConfig precision_;
};

struct F8Case {
    const char* name;
    PrecisionConfig precision;
};

inline const F8Case kF8Cases[] = {
    {"all layers", PrecisionConfig::fp8()}, {"first layer bf16", kFirstBf16}, {"last layer bf16", kLastBf16}};

}  // namespace coda::test
