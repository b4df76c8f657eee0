// A build without the Hopper kernels.
#include "kernels/core/error.h"
#include "src/train/hopper_executor.h"

namespace coda {

namespace {
constexpr const char* kAbsent =
    "this build has no kernels for a GPU (build the preset hopper, which needs nvcc >= 12.4)";
}  // namespace

std::optional<std::string> gpu_problem() { return kAbsent; }
DeviceMemory device_memory() { throw Error(kAbsent); }
std::unique_ptr<Executor> make_hopper_executor(const Schedules&, const MemoryPlan&) { throw Error(kAbsent); }

}  // namespace coda
