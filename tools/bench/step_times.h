// Times of the training step of a configuration on this GPU.
#pragma once

#include <optional>
#include <vector>

#include "src/config/config.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

struct StepTimeOptions {
    double warm_up = 2;                                         // seconds
    int steps = 20;                                             // timed steps; their median counts
    bool floor = true;                                          // the bare GEMMs, in turns with the step
    std::optional<double> cudnn_forward_ms, cudnn_backward_ms;  // of one layer's attention
    bool clocks = false;                                        // read them under load, for a result's header
};

/// Milliseconds. The medians of whole passes are of CUDA graphs, including launch and wait. Times of single ops are
/// medians between CUDA events of runs op by op, which add about 2 us to each.
struct StepTimes {
    double forward_backward = 0, update = 0, whole = 0;
    double forward = 0, backward = 0;  // forward_backward, divided as the ops' times are
    double products = 0, attention_forward = 0, attention_backward = 0, other = 0;  // sums over one micro-batch's ops
    double grad_norm = 0, adamw = 0;
    double floor_products = 0, floor = 0;  // bare GEMMs; with the faster attention, ours or cuDNN's
    double floor_ratio = 0;                // median of forward_backward over floor, pair by pair
    bool has_floor = false;

    double other_share() const { return other / (products + attention_forward + attention_backward + other); }
};

struct StepResult {
    StepTimes times;
    double parameters = 0, tokens = 0, model_flops = 0, peak_flops_per_s = 0;
    double peak_gib = 0;  // device memory that the executor took, without CUDA's context
    Clocks clocks;

    double tokens_per_s() const { return tokens / times.whole * 1e3; }
    double mfu(double ms) const { return model_flops / (ms * 1e-3) / peak_flops_per_s; }
};

/// One micro-batch of random tokens and one update per step, on the weights that training starts with. The learning
/// rate is 0, so every timed step sees a new model's numbers. Throws Error where there is no Hopper GPU, and where the
/// configuration does not fit it.
StepResult measure_step(const Config& config, const StepTimeOptions& options);

}  // namespace coda::bench
