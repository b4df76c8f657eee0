// Which device a run is for, what it computes in there, and whether it fits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/engine/cpu_time.h"
#include "src/engine/executor.h"

namespace coda {

/// The precision that a device trains in. FP8 operands are rounded from bf16 storage, on the CPU too.
Precision precision_of(const Config& config, DeviceChoice device);

/// `automatic` resolved on this machine and build for these passes: the GPU where one can run them.
DeviceChoice resolve_device(const Config& config, PassSet passes);

/// Why `automatic` is the CPU although a GPU is here; empty otherwise.
std::string why_not_gpu(const Config& config, PassSet passes);

/// Throws Error, with what to do, when the device cannot run these passes on this machine.
void require_device(const Config& config, DeviceChoice device, PassSet passes);

/// Throws Error where `automatic` is the CPU and a piece of work would take longer than kMostCpuSeconds there, with the
/// reason why no GPU does it: --device cpu runs it all the same.
void require_patience(const Config& config, PassSet passes, const std::vector<CpuWork>& works);

/// The line of a dry run on the CPU that says how long it takes.
std::string cpu_time_line(const CpuWork& work);

/// Throws Error, with the settings that would help, when the arena does not fit into what the device has to give.
void require_fit_on(const Config& config, DeviceChoice device, PassSet passes, const MemoryPlan& plan,
                    RankOf rank = {});

/// The same for a plan that generates, with what its cache takes.
void require_generation_fit_on(DeviceChoice device, const Schedules& schedules, const MemoryPlan& plan);

/// What a dry run says of the device: that the arena fits, with the process's total on a GPU, or that no GPU is here to
/// compare with. Throws as require_fit_on, and where the model does not fit the device's kernels.
std::string fit_line(const Config& config, DeviceChoice device, PassSet passes, const MemoryPlan& plan, RankOf rank);

/// Allocates the arena on the device. `schedules` must outlive the executor.
std::unique_ptr<Executor> make_executor(DeviceChoice device, const Schedules& schedules, const MemoryPlan& plan,
                                        Team* team);

}  // namespace coda
