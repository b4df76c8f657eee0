// Runs a decode plan: one launch of the fused kernel makes many tokens. Host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/hopper/decode/report/report.h"
#include "kernels/hopper/decode/report/trace.h"
#include "kernels/hopper/sm90/launch.h"

namespace coda::hopper::decode {

struct LaunchOptions {
    double watchdog_seconds = 2;
    int in_flight_bytes = 0;  // of loads per SM at a time; 0: fastest_in_flight()
    int most_steps = 32;      // per launch
    int traced_step = -1;     // of each launch: the one for trace(); -1: none
};

/// Members of the batch advance by up to `steps` tokens each; rows that do not run stay as they are. Its memory on the
/// current device is made once, by the constructor.
class FusedDecode {
  public:
    /// `plan` comes from lower() with a grid of the device's SMs (multiprocessors() of sm90/device.h). Throws Error
    /// where the kernel does not fit this device.
    explicit FusedDecode(DecodePlan plan, const LaunchOptions& options = {});
    ~FusedDecode();
    FusedDecode(const FusedDecode&) = delete;
    FusedDecode& operator=(const FusedDecode&) = delete;

    /// Enqueues a launch of 1 to LaunchOptions::most_steps steps; of one where DecodePlan::shares_caches().
    void launch(int steps, Stream stream);
    /// Waits for the launches, and throws Error with the watchdog's message where one of them was ended by it. The
    /// state of all sequences is undefined then.
    void finish(Stream stream);
    /// The tokens of the last launch, by step and sequence; -1 where the row did not run. After finish().
    std::vector<std::int32_t> made(int steps) const;
    /// Time stamps of step `traced_step` of the last launch. After finish().
    StepTrace trace() const;
    /// Asks a running launch to end after the step that it is at. From any thread; holds for launches until resume().
    void cancel();
    void resume();

    const DecodePlan& plan() const;

  private:
    struct Device;
    std::unique_ptr<Device> device_;
};

}  // namespace coda::hopper::decode
