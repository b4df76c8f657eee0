// The scales of FP8 tensors in a run: how they begin, how a resume finds them again, and what the log says of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/executor.h"
#include "src/engine/f8_counts.h"
#include "src/io/log_records.h"

namespace coda {

struct CheckpointInfo;

/// Throws NonFiniteError where a tensor had an infinite element. FP8 clips it, so the results of a step do not show it.
void require_finite(std::int64_t step, const std::vector<F8Record>& records);

/// Does nothing where no GEMM takes FP8.
class F8Scales {
  public:
    F8Scales(Executor& executor, const Schedules& schedules, const PrecisionConfig& precision);

    /// Scales and the weights' copies after the weights have been loaded. `checkpoint`: where they are from, if its run
    /// had scales of the same tensors and window; then they are as that run had them, to the bit. Otherwise only the
    /// weights' scales are known. Throws Error where a magnitude in the checkpoint is negative or not finite.
    void load(const CheckpointInfo* checkpoint);

    /// Whether calibrate() must come before the next step: gradients have scales, and none has been seen.
    bool needs_calibration() const { return needs_calibration_; }

    /// Finds the scales of activations and gradients from passes over a step's micro-batches, `run`, which update
    /// nothing. All of them: one of few counted targets has small gradients, and another one's would be clipped.
    void calibrate(const std::function<void()>& run);

    /// Begins to read what the step under way has seen, before its update.
    std::unique_ptr<Readback> read();
    /// What counts the codes of a step, if it is one of those that do: the observer of its micro-batches.
    F8Counts* counter(std::int64_t step);

    /// Of those values, per kind of tensor, the layer that comes closest to the end of its range; and of the counts,
    /// empty for a step without, the largest shares.
    std::vector<F8Record> records(const std::vector<double>& values, const std::vector<CodeCounts>& counts) const;

  private:
    void renew();

    Executor& executor_;
    const Schedules& schedules_;
    const PrecisionConfig& precision_;
    F8Counts counter_;
    bool needs_calibration_ = false;
};

}  // namespace coda
