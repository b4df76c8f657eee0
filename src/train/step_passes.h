// The passes of a training step and what the host gives them: the same for coda_train and for a caller's own loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/engine/session.h"
#include "src/io/loader.h"
#include "src/train/f8_scales.h"

namespace coda {

/// The rank's micro-batches of a step, and how many targets of the whole step count.
struct StepBatches {
    std::vector<TokenBatch> batches;
    std::int64_t valid = 0;
};

class StepPasses {
  public:
    StepPasses(Session& session, F8Scales& scales) : session_(session), scales_(scales) {}

    /// Finds the scales of FP8 tensors where no step has.
    void calibrate(const StepBatches& batches);

    /// Feeds and runs micro-batches, each by `run`.
    void run_micro_batches(const StepBatches& batches, const std::function<void(Pass)>& run);

    /// Uploads what Pass::update reads. It updates nothing where the gradient norm is above `drop_above`, or where no
    /// target of the step counts.
    void upload_update_scalars(std::int64_t step, double lr, std::int64_t counted, double drop_above);

  private:
    Session& session_;
    F8Scales& scales_;
};

}  // namespace coda
