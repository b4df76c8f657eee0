// What FP8 tensors lose to their scales in a training step: elements at the end of the range, and zeros.
#pragma once

#include <vector>

#include "src/engine/executor.h"

namespace coda {

/// Observes the micro-batches of a step, which run op by op, and counts the codes of each tensor with a scale of its
/// own as soon as they are stored. It changes nothing that training reads.
class F8Counts : public StepObserver {
  public:
    F8Counts(Executor& executor, const Schedules& schedules) : executor_(executor), schedules_(schedules) {}

    /// Before the step's first micro-batch: forgets what was counted, and counts the weights' copies that it reads.
    void begin();
    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double start_us, double ms) override;

    /// The counts of the step, by the numbers of Schedules::weights.tensors().
    const std::vector<CodeCounts>& counts() const { return counts_; }

  private:
    /// Adds the codes of a tensor that an op has rounded.
    void add(const Rounded& codes);

    Executor& executor_;
    const Schedules& schedules_;
    std::vector<CodeCounts> counts_;
};

}  // namespace coda
