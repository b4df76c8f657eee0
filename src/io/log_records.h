// What a run's log says of a step, an evaluation and a sample. src/io/run_log.h has the form in which it says so.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace coda {

/// Shares of the elements of an FP8 tensor.
struct F8Lost {
    double saturated = 0;  // at the end of the range
    double zeros = 0;
};

/// Of the FP8 tensors of a kind, the one that came closest to the end of its range.
struct F8Record {
    std::string tensor;  // "gate_up.output_gradient"
    int layer = 0;
    double amax = 0;   // its largest magnitude
    double range = 0;  // that times the scale, over the largest number of the format; above 1: it was saturated
    std::optional<F8Lost> lost{};  // the largest of any layer, where the step counted them
};

struct StepRecord {
    std::int64_t step = 0;  // optimizer steps taken, this one included
    double loss = 0;        // mean nats per target
    double grad_norm = 0;   // before clipping
    double lr = 0;
    std::int64_t tokens = 0;  // consumed since the run's start
    double ms = 0;            // of this step
    double tokens_per_s = 0;
    double mfu = 0;         // model FLOPs / (time x peak)
    double memory_gib = 0;  // 2^30 bytes of device memory in use
    // How far above the usual loss and norm are (src/train/spike_watch.h); NaN without a verdict.
    double loss_z = std::numeric_limits<double>::quiet_NaN();
    double norm_z = std::numeric_limits<double>::quiet_NaN();
    std::string skipped{};       // why the update was dropped; empty where it was not, and then absent from the log
    std::vector<F8Record> f8{};  // absent from the log where empty
};

struct EvaluationRecord {
    std::int64_t step = 0;
    std::string name;     // of the file, without folder and extension
    double acc = 0;       // share of the examples whose right completion has the lowest total loss
    double acc_norm = 0;  // the same with the lowest mean loss per token
    std::int64_t examples = 0;
};

struct SampleRecord {
    std::int64_t step = 0;
    // Without a tokenizer there is no text: null in the log. What is not UTF-8 stands there as U+FFFD.
    std::optional<std::string> prompt, text;
    std::vector<std::int32_t> tokens;  // of the sample, without the prompt
};

}  // namespace coda
