// The GPU's energy counter. At the power limit, the energy of a kernel decides its time.
#pragma once

#include <memory>

namespace coda::bench {

/// NVML's counter of the current device. It lags by some tenths of a second (docs/ATTEMPTS.md), so its value is coarse
/// for one second and says nothing about less.
class EnergyCounter {
  public:
    EnergyCounter();
    ~EnergyCounter();
    EnergyCounter(const EnergyCounter&) = delete;
    EnergyCounter& operator=(const EnergyCounter&) = delete;

    /// Joules since the driver was loaded; 0 where NVML or its counter is missing.
    double joules() const;

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

}  // namespace coda::bench
