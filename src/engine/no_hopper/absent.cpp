// A build without the Hopper kernels.
#include "kernels/core/error.h"
#include "src/engine/gpu_presence.h"
#include "src/engine/hopper_executor.h"
#include "src/engine/rank_memory.h"

namespace coda {

std::optional<GpuProblem> gpu_problem() {
    GpuFacts facts;
    facts.kernels = false;
    facts.sign = nvidia_gpu_sign();
    return gpu_problem(facts);
}
void select_gpu(int) { throw Error(gpu_problem()->what); }
std::unique_ptr<RankMemory> make_gpu_memory(std::int64_t) { throw Error(gpu_problem()->what); }
DeviceMemory device_memory() { throw Error(gpu_problem()->what); }
std::unique_ptr<Executor> make_hopper_executor(const Schedules&, const MemoryPlan&, Team*) {
    throw Error(gpu_problem()->what);
}

}  // namespace coda
