// Times of the training step of a configuration on this GPU.
#pragma once

#include <optional>
#include <vector>

#include "src/config/config.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

struct StepTimeOptions {
    double warm_up = 2;                                         // seconds
    int steps = 20;                                             // timed steps, in turns of five
    bool floor = true;                                          // the bare GEMMs, in turns with a step in bf16
    bool bf16 = true;                                           // also the step in bf16 of one with FP8 operands
    std::optional<double> cudnn_forward_ms, cudnn_backward_ms;  // of one layer's attention
    bool clocks = false;                                        // read them under load, for a result's header
};

/// Milliseconds. Those of whole passes are of CUDA graphs, including launch and wait, medians over the turns of each
/// turn's median. Times of single ops are medians between CUDA events of runs op by op, which add about 2 us to each.
struct StepTimes {
    double forward_backward = 0, update = 0, whole = 0;
    double forward = 0, backward = 0;  // forward_backward, divided as the ops' times are
    double products = 0, attention_forward = 0, attention_backward = 0, other = 0;  // sums over one micro-batch's ops
    double grad_norm = 0, adamw = 0;
    double f8_update = 0;                  // scales and the weights' copies; part of the update
    double floor_products = 0, floor = 0;  // bare GEMMs; with the faster attention, ours or cuDNN's
    double floor_ratio = 0;                // median of forward_backward over floor, pair by pair
    bool has_floor = false;

    double other_share() const { return other / (products + attention_forward + attention_backward + other); }
};

struct StepResult {
    StepTimes times;
    double parameters = 0, tokens = 0, model_flops = 0, peak_flops_per_s = 0;
    double peak_gib = 0;  // device memory that the executor took, without CUDA's context
    double arena_gib = 0;
    std::vector<double> forward_backward_rounds, whole_rounds;  // of every turn, in milliseconds
    Clocks clocks;

    double tokens_per_s() const { return tokens / times.whole * 1e3; }
    double mfu(double ms) const { return model_flops / (ms * 1e-3) / peak_flops_per_s; }
};

/// A step, and of one with FP8 operands the same step in bf16: in turns where the GPU's memory holds both models, else
/// all of bf16 before all of FP8.
struct StepMeasurement {
    StepResult step;
    std::optional<StepResult> bf16;
    bool in_turns = false;
};

/// One micro-batch of random tokens and one update per step, on the weights that training starts with. The learning
/// rate is 0, so every timed step sees a new model's numbers. FP8 scales are loaded and calibrated as a training run
/// does it, on that micro-batch. Throws Error without a Hopper GPU, and if the configuration does not fit it.
StepMeasurement measure_step(const Config& config, const StepTimeOptions& options);

}  // namespace coda::bench
