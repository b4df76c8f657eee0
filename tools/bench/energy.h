// The GPU's energy counter: at the power limit the energy of a kernel decides its time.
#pragma once

#include <memory>

namespace coda::bench {

/// NVML's counter of the current device. It lags behind by some tenths of a second (docs/ATTEMPTS.md), so what it says
/// of a second is coarse, and of less nothing.
class EnergyCounter {
  public:
    EnergyCounter();
    ~EnergyCounter();
    EnergyCounter(const EnergyCounter&) = delete;
    EnergyCounter& operator=(const EnergyCounter&) = delete;

    /// Joules since the driver was loaded; 0 where NVML or its counter is not there.
    double joules() const;

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

}  // namespace coda::bench
