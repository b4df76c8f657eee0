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

    /// What Pass::update reads of the host. `drop_above`: the gradient norm above which nothing is updated; that of a
    /// step without a counted target is dropped always.
    void upload_update_scalars(std::int64_t step, double lr, std::int64_t counted, double drop_above);

  private:
    Session& session_;
    F8Scales& scales_;
};

}  // namespace coda
