// Training on a Hopper GPU: what it needs, and its executor. A build without the Hopper kernels has the
// same functions, and they say so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/config/config.h"
#include "src/engine/executor.h"
#include "src/engine/gpu_requirements.h"

namespace coda {

/// Why the kernels of this build cannot run on this machine: no kernels in the build, no driver, a driver older than
/// the CUDA runtime, no GPU, or one whose compute capability is not 9.0. Nothing where they can.
std::optional<GpuProblem> gpu_problem();

/// Why the Hopper kernels cannot run these passes of the configuration, naming the key. Nothing where they can.
std::optional<std::string> hopper_problem(const Config& config, PassSet passes);

/// Makes `device`, a number among the GPUs that the process sees, the current device of this thread. Throws Error where
/// there are fewer.
void select_gpu(int device);

/// Memory of the current device in bytes, and what of it an arena may take: what is free, less the executor's overhead.
struct DeviceMemory {
    std::int64_t total = 0, available = 0;
};
DeviceMemory device_memory();

/// About what the process holds on the device outside the arena: CUDA's context, kernels, graphs, staging.
inline constexpr std::int64_t kDeviceOverheadBytes = std::int64_t{700} << 20;

/// Allocates the arena on the current device (persistent buffers zeroed), prepares every op and captures a CUDA graph
/// of each pass when it first runs. `schedules` must outlive it. Throws Error when the device cannot hold the arena, or
/// an op does not fit its kernel.
std::unique_ptr<Executor> make_hopper_executor(const Schedules& schedules, const MemoryPlan& plan, Team* team);

}  // namespace coda
