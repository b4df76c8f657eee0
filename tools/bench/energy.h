// The GPU's energy counter: at the power limit the energy of a kernel decides its time.
#pragma once

#include <memory>

namespace coda::bench {

/// NVML's counter of the current device. The driver renews it every 20 to 100 ms, so measure over half a second or
/// more.
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
