// What tests of whole training steps on the GPU have in common: cases, their batches, and how gradients are compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/hopper/small_model.h"
#include "tests/model/harness.h"

namespace coda::test {

struct TrainingCase {
    const char* name;
    std::int64_t head_dim = 64;
    bool tied = false;
    bool bias = false;   // every bias that the model can have
    bool norms = false;  // of q and k
    std::int64_t window = 0;
    MlpKind mlp = MlpKind::swiglu;
    bool learned = false;  // positions
    bool layernorm = false;
    bool yarn = false;
    Sizes sizes{.batch = 2, .seq_len = 100};
    int micro_batches = 1;
};

inline ModelConfig model_of(const TrainingCase& c) {
    ModelConfig model = small_model(c.head_dim, c.tied, c.bias, c.norms, c.window);
    model.attention_out_bias = c.bias;
    if (c.layernorm) model.norm = NormKind::layernorm;
    model.mlp = c.mlp;
    model.mlp_bias = c.bias && c.mlp != MlpKind::swiglu;
    if (c.learned) {
        model.position_embeddings = PositionEmbeddings::learned;
        model.max_position_embeddings = c.sizes.seq_len + 28;
    }
    if (c.yarn) model.rope_scaling = small_yarn();
    return model;
}

inline constexpr double kLearningRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95;

inline std::vector<textbook::Batch> batches_of(const TrainingCase& c, const ModelConfig& model, int step) {
    std::vector<textbook::Batch> batches;
    for (int i = 0; i < c.micro_batches; ++i) {
        batches.push_back(random_batch(model, c.sizes.batch, c.sizes.seq_len, static_cast<std::uint64_t>(31 * step + i),
                                       c.sizes.document_mask));
    }
    return batches;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Bounds for a whole tensor. q and k have rows of dS that sum to 0: little is left of them, so an error is relatively
/// larger.
struct GradientBounds {
    double cosine, cosine_of_q_and_k;  // of 1 - cosine
    double norm;                       // relative
};

inline void check_gradients(const textbook::Weights& got, const textbook::Weights& expected,
                            const GradientBounds& bounds) {
    for (const auto& [name, gradient] : expected) {
        const bool sums_to_zero =
            name.find("attn.q_") != std::string::npos || name.find("attn.k_") != std::string::npos;
        // Where nothing turns q and k, softmax does not notice a bias that all keys share: its gradient is 0 but for
        // rounding, and is measured against the gradient of v's bias.
        if (const std::size_t at = name.find("k_proj.bias"); at != std::string::npos) {
            const std::vector<double>& of_v = expected.at(std::string(name).replace(at, 1, "v"));
            const double scale = bounds.norm * std::sqrt(dot(of_v, of_v));
            if (std::sqrt(dot(gradient, gradient)) < scale) {
                INFO(name);
                CHECK(std::sqrt(dot(got.at(name), got.at(name))) <= scale);
                continue;
            }
        }
        const double norm = std::sqrt(dot(gradient, gradient)), got_norm = std::sqrt(dot(got.at(name), got.at(name)));
        const double cosine = dot(got.at(name), gradient) / (norm * got_norm);
        INFO(name << ": cosine " << cosine << ", norm " << got_norm << ", expected " << norm);
        CHECK(1 - cosine < (sums_to_zero ? bounds.cosine_of_q_and_k : bounds.cosine));
        CHECK(std::abs(got_norm - norm) <= bounds.norm * norm);
    }
}

/// Fills every buffer that a step writes with bytes of one value.
inline void poison_arena(Executor& executor, const Schedules& schedules, const MemoryPlan& plan, int value) {
    const std::vector<Buffer>& buffers = schedules.buffers.all();
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (buffers[b].lifetime == Lifetime::persistent || plan.offset[b] < 0) continue;
        const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(buffers[b].bytes),
                                              static_cast<std::uint8_t>(value));
        executor.upload({static_cast<BufferId>(b), DType::u8, 0, 1, buffers[b].bytes, buffers[b].bytes, 0},
                        bytes.data());
    }
}

}  // namespace coda::test
