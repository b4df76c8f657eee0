#include "tools/bench/energy.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "kernels/hopper/sm90/check.h"

namespace coda::bench {

// NOTE: NVML belongs to the driver, not to the toolkit. It is loaded when the program runs, so that the program also
// starts without a driver.
struct EnergyCounter::Library {
    void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    void* device = nullptr;
    int (*total_energy)(void*, unsigned long long*) = nullptr;  // millijoules

    template <class Function>
    Function find(const char* name) const {
        return handle ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
    }
};

EnergyCounter::EnergyCounter() : library_(std::make_unique<Library>()) {
    int current = 0;
    char bus[32] = "";
    CUDA_CHECK(cudaGetDevice(&current));
    CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, current));
    const auto init = library_->find<int (*)()>("nvmlInit_v2");
    const auto by_bus = library_->find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (init && by_bus && init() == 0 && by_bus(bus, &library_->device) == 0)
        library_->total_energy =
            library_->find<int (*)(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
}

EnergyCounter::~EnergyCounter() {
    if (const auto shutdown = library_->find<int (*)()>("nvmlShutdown")) shutdown();
    if (library_->handle) dlclose(library_->handle);
}

double EnergyCounter::joules() const {
    unsigned long long millijoules = 0;
    if (!library_->total_energy || library_->total_energy(library_->device, &millijoules) != 0) return 0;
    return static_cast<double>(millijoules) * 1e-3;
}

}  // namespace coda::bench
