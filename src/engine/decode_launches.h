// Many steps of Pass::decode in one launch, where an executor has a kernel for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coda {

/// What a launch left behind.
struct DecodedSteps {
    std::vector<std::int32_t> tokens;  // by step and row of the pass (SequenceRows), -1 where the row made none
    std::vector<std::int32_t> states;  // RowState of each row, after the last step
};

class DecodeLaunches {
  public:
    virtual ~DecodeLaunches() = default;

    virtual int most_steps() const = 0;  // of one launch

    /// Runs 1 to most_steps() steps of all sequences, after everything enqueued so far, and waits for them. As soon as
    /// `cancelled` says so it ends after the step that it is at. Throws Error where a wait within the kernel took
    /// longer than the watchdog's limit; the states of the sequences are undefined then.
    virtual DecodedSteps run(int steps, const std::function<bool()>& cancelled) = 0;
};

/// Either may be absent: the launches, and why there are none although the executor has such a kernel.
struct DecodeLaunchesOffer {
    std::unique_ptr<DecodeLaunches> launches{};
    std::string problem{};  // one sentence that names the operand
};

}  // namespace coda
