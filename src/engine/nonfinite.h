// Which op made the first NaN or infinity of a step.
#pragma once

#include <optional>
#include <string>

#include "src/engine/executor.h"

namespace coda {

/// Scans what each step of a pass writes, in order, until a result is not finite.
class NonFiniteFinder : public StepObserver {
  public:
    NonFiniteFinder(Executor& executor, const Schedules& schedules) : executor_(executor), schedules_(schedules) {}

    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double start_us, double ms) override;

    /// "LinearSwiglu 'gate_up' of layer 3: operand z is not finite at row 17, column 5", once found.
    const std::optional<std::string>& found() const { return found_; }

  private:
    Executor& executor_;
    const Schedules& schedules_;
    std::optional<std::string> found_;
};

}  // namespace coda
