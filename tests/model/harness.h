// A model run by the CPU executor next to the textbook model: the same weights, batches and gradients in both.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "kernels/core/integers.h"
#include "src/engine/executor.h"
#include "src/engine/feed.h"
#include "src/engine/model_state.h"
#include "src/io/loader.h"
#include "tests/model/host_weights.h"
#include "tests/oracle/textbook.h"
#include "tests/tiny_model.h"

namespace coda::test {

struct Sizes {
    std::int64_t batch = 2, seq_len = 6, chunks = 1;
    Recompute recompute = Recompute::none;
    bool document_mask = false;
    OptimizerConfig optimizer{};
    PassSet passes = kAllPasses;
    GenerationShape generation{};
    PrecisionConfig gemms{};
    double max_grad_norm = 1.0;
    int rank = 0, ranks = 1;
    std::int64_t micro_batches = 1;  // of a rank
};

/// Transient buffers each in memory of their own, so that none is initialised by another.
inline MemoryPlan without_sharing(const Schedules& schedules, MemoryPlan plan) {
    const std::vector<Buffer>& buffers = schedules.buffers.all();
    plan.transient_bytes = 0;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (buffers[b].lifetime == Lifetime::persistent || plan.offset[b] < 0) continue;
        plan.offset[b] = plan.arena_bytes();
        plan.transient_bytes += round_up(buffers[b].bytes, kBufferAlignment);
    }
    return plan;
}

/// Writes a contiguous view, rounded to its type.
inline void set_elements(Executor& executor, const View& view, const std::vector<double>& values) {
    const auto send = [&](auto convert) {
        std::vector<decltype(convert(0.0))> typed;
        for (const double value : values) typed.push_back(convert(value));
        executor.upload(view, typed.data());
    };
    switch (view.dtype) {
        case DType::f64: return send([](double v) { return v; });
        case DType::f32: return send([](double v) { return static_cast<float>(v); });
        case DType::bf16: return send([](double v) { return Bf16(static_cast<float>(v)); });
        default: throw Error("no such elements");
    }
}

/// The elements of a contiguous view.
inline std::vector<double> elements(Executor& executor, const View& view) {
    std::vector<std::byte> staging;
    const std::span<const std::byte> bytes = executor.bytes(view, staging);
    const auto read = [&](auto zero) {
        using T = decltype(zero);
        const std::span values(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
        std::vector<double> result;
        for (const T value : values) result.push_back(static_cast<double>(static_cast<float>(value)));
        return result;
    };
    if (view.dtype == DType::f64) {
        const std::span values(reinterpret_cast<const double*>(bytes.data()), bytes.size() / sizeof(double));
        return {values.begin(), values.end()};
    }
    return view.dtype == DType::f32 ? read(float{}) : read(Bf16{});
}

class ModelRun {
  public:
    ModelRun(const ModelConfig& config, const Sizes& sizes, Precision precision)
        : model(config), layout(parameter_layout(config)), sizes_(sizes) {
        ScheduleOptions options;
        options.precision = precision;
        options.seq_len = sizes.seq_len;
        options.micro_batch_size = sizes.batch;
        options.lm_head_chunks = sizes.chunks;
        options.recompute = sizes.recompute;
        options.document_mask = sizes.document_mask;
        options.max_grad_norm = sizes.max_grad_norm;
        options.optimizer = sizes.optimizer;
        options.generation = sizes.generation;
        options.gemms = sizes.gemms;
        options.rank = {sizes.rank, sizes.ranks};
        options.micro_batches = sizes.micro_batches;
        schedules = build_schedules(config, layout, options, sizes.passes);
    }

    /// Allocates; the schedules may be changed before this.
    template <class MakeExecutor = decltype(&make_cpu_executor)>
    void start(MakeExecutor make_executor = make_cpu_executor, Team* team = nullptr) {
        plan = plan_memory(schedules.buffers, schedules.all());
        executor = make_executor(schedules, plan, team);
        set_elements(schedules.host.rope, rope_table(model, schedules.host.rope.rows));
        tokens = std::make_unique<TokenInput>(*executor, schedules);
        // Whatever is not written shows.
        if (schedules.uses(schedules.host.gradient)) poison(schedules.host.gradient);
        for (const Step& step : schedules.derive) {
            for_each_operand(step.op, [&](const char*, const View& operand, Access access) {
                if (access == Access::out)
                    set_elements(operand, std::vector<double>(static_cast<std::size_t>(operand.count()), std::nan("")));
            });
        }
    }

    void set_weights(const textbook::Weights& weights) {
        std::vector<double> flat(static_cast<std::size_t>(layout.count), 0.0);
        for (const HfTensor& tensor : layout.tensors) {
            const std::vector<double>& source = weights.at(tensor.name);
            for (std::int64_t row = 0; row < tensor.rows; ++row) {
                std::copy_n(source.begin() + row * tensor.cols, tensor.cols, flat.begin() + tensor.row_offset(row));
            }
        }
        if (schedules.uses(schedules.host.master) && !schedules.division.divides()) {
            set_elements(schedules.host.master, flat);
            renew_working(*executor, schedules, layout);
        } else {
            const HostWeights single(layout, {flat.begin(), flat.end()});
            send_weights(*executor, schedules, layout, single);
            tokens->set_rows(layout, single);
        }
    }

    textbook::Weights get(const View& segment) {
        const std::vector<double> flat = elements(segment);
        textbook::Weights result;
        for (const HfTensor& tensor : layout.tensors) {
            std::vector<double>& target = result[tensor.name];
            for (std::int64_t row = 0; row < tensor.rows; ++row) {
                const auto begin = flat.begin() + tensor.row_offset(row);
                target.insert(target.end(), begin, begin + tensor.cols);
            }
        }
        return result;
    }
    textbook::Weights gradients() { return get(schedules.host.gradient); }

    /// Forward and backward of all micro-batches of a step; returns the loss.
    double step(const std::vector<textbook::Batch>& batches) {
        return step(batches, [&](Pass pass) { executor->run(pass); });
    }
    template <class RunPass>
    double step(const std::vector<textbook::Batch>& batches, const RunPass& run_pass) {
        upload_scalar(*executor, schedules.host.alpha, 1.0 / static_cast<double>(valid_targets(batches)));
        for (std::size_t i = 0; i < batches.size(); ++i) {
            feed(batches[i]);
            run_pass(i == 0 ? Pass::first : Pass::further);
        }
        return download_scalar(*executor, schedules.host.loss);
    }
    /// The optimizer's part of step `t`; returns the gradient's norm.
    double update(std::int64_t t, double learning_rate, double beta1, double beta2) {
        const HostViews& host = schedules.host;
        upload_scalar(*executor, host.lr, learning_rate);
        upload_scalar(*executor, host.correction1, 1 / (1 - std::pow(beta1, static_cast<double>(t))));
        upload_scalar(*executor, host.correction2, 1 / (1 - std::pow(beta2, static_cast<double>(t))));
        upload_scalar(*executor, host.step, static_cast<double>(t));
        upload_scalar(*executor, host.drop_above, std::numeric_limits<double>::infinity());
        executor->run(Pass::update);
        return download_scalar(*executor, host.norm);
    }
    double evaluate(const textbook::Batch& batch) {
        upload_scalar(*executor, schedules.host.alpha, 1.0 / static_cast<double>(valid_targets({batch})));
        feed(batch);
        executor->run(Pass::evaluate);
        return download_scalar(*executor, schedules.host.val_loss);
    }

    void feed(const textbook::Batch& batch) {
        const auto count = static_cast<std::size_t>(sizes_.batch * sizes_.seq_len);
        std::vector<std::int32_t> positions(count), doc_start(count);
        for (std::size_t m = 0; m < count; ++m) {
            const std::size_t t = m % static_cast<std::size_t>(sizes_.seq_len);
            std::size_t start = t;
            while (start > 0 && (batch.document.empty() || batch.document[m - t + start - 1] == batch.document[m])) {
                --start;
            }
            doc_start[m] = static_cast<std::int32_t>(start);
            const auto window = static_cast<std::size_t>(model.sliding_window);
            if (window > 0 && t >= window) doc_start[m] = static_cast<std::int32_t>(std::max(start, t - window + 1));
            positions[m] = static_cast<std::int32_t>(batch.restart_positions ? t - start : t);
        }
        tokens->upload(batch.tokens);
        executor->upload(schedules.host.targets, batch.targets.data());
        executor->upload(schedules.host.positions, positions.data());
        if (schedules.host.doc_start) executor->upload(schedules.host.doc_start, doc_start.data());
    }

    void set_elements(const View& view, const std::vector<double>& values) {
        test::set_elements(*executor, view, values);
    }
    std::vector<double> elements(const View& view) { return test::elements(*executor, view); }

    static std::int64_t valid_targets(const std::vector<textbook::Batch>& batches) {
        std::int64_t valid = 0;
        for (const textbook::Batch& batch : batches) {
            for (const int target : batch.targets) valid += target >= 0;
        }
        return valid;
    }

    ModelConfig model;
    ParameterLayout layout;
    Schedules schedules;
    MemoryPlan plan;
    std::unique_ptr<Executor> executor;
    std::unique_ptr<TokenInput> tokens;

  private:
    void poison(const View& view) {
        // Segment padding is zero by contract (GradNorm reads it); everything else must be written before it is read.
        std::vector<double> flat = elements(view);
        for (const HfTensor& tensor : layout.tensors) {
            for (std::int64_t row = 0; row < tensor.rows; ++row) {
                std::fill_n(flat.begin() + tensor.row_offset(row), tensor.cols, std::nan(""));
            }
        }
        set_elements(view, flat);
    }

    Sizes sizes_;
};

/// Random tokens; about one target in five is ignored.
inline textbook::Batch random_batch(const ModelConfig& model, std::int64_t batch, std::int64_t seq_len,
                                    std::uint64_t seed, bool documents = false) {
    std::mt19937_64 random(seed);
    textbook::Batch result;
    result.batch = batch;
    result.seq_len = seq_len;
    int document = 0;
    for (std::int64_t m = 0; m < batch * seq_len; ++m) {
        result.tokens.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(model.vocab_size)));
        const auto target = static_cast<int>(random() % static_cast<std::uint64_t>(model.vocab_size));
        result.targets.push_back(random() % 5 == 0 ? -1 : target);
        if (documents) {
            if (m % seq_len == 0 || random() % 3 == 0) ++document;
            result.document.push_back(document);
        }
    }
    return result;
}

/// max |a - b| / max |b| over a tensor; infinity where a is not finite.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
    double difference = 0, scale = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        if (!std::isfinite(a[i])) return INFINITY;
        difference = std::max(difference, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return scale == 0 ? difference : difference / scale;
}

/// The worst relative_error over all tensors. Without RoPE the gradient of k's bias is 0, as softmax ignores what all
/// keys share: its error counts against q's gradient where that is larger.
inline double worst_error(const textbook::Weights& a, const textbook::Weights& b) {
    double worst = 0;
    for (const auto& [name, values] : b) {
        std::vector<double> have = a.at(name), want = values;
        if (const std::size_t at = name.find("k_proj.bias"); at != std::string::npos) {
            const std::vector<double>& scale = b.at(name.substr(0, at) + "q_proj.bias");
            have.insert(have.end(), scale.begin(), scale.end());
            want.insert(want.end(), scale.begin(), scale.end());
        }
        worst = std::max(worst, relative_error(have, want));
    }
    return worst;
}

}  // namespace coda::test
