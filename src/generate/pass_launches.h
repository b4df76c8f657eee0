// Steps of generation as passes, one per step, on any executor.
#pragma once

#include <functional>

#include "src/engine/executor.h"

namespace coda {

/// One run of Pass::decode per step. `run` executes it; executor and schedules must outlive the launches.
class PassLaunches : public DecodeLaunches {
  public:
    PassLaunches(Executor& executor, const Schedules& schedules, std::function<void(Pass)> run);

    int most_steps() const override { return 1; }
    DecodedSteps run(int steps, const std::function<bool()>& cancelled) override;

  private:
    std::vector<std::int32_t> read(const View& per_row);

    Executor& executor_;
    const SequenceRows& sequences_;
    std::function<void(Pass)> run_;
};

}  // namespace coda
