// Which device a run is for, what it computes in there, and whether it fits.
#pragma once

#include <memory>
#include <string>

#include "src/config/config.h"
#include "src/train/executor.h"

namespace coda {

/// The precision that a device trains in.
Precision precision_of(DeviceChoice device);

/// `automatic` resolved on this machine and build for this model: the GPU where one can run it.
DeviceChoice resolve_device(const Config& config);

/// Why `automatic` is the CPU although a GPU that this build has kernels for is here; empty otherwise.
std::string why_not_gpu(const Config& config);

/// Throws Error, with what to do, when the device cannot run this model on this machine.
void require_device(const Config& config, DeviceChoice device);

/// Throws Error, with the settings that would help, when the arena does not fit into what the device has to give.
void require_fit_on(const Config& config, DeviceChoice device, PassSet passes, const MemoryPlan& plan);

/// What a dry run says of the device: that the arena fits, with the process's total on a GPU, or that no GPU is here to
/// compare with. Throws as require_fit_on, and where the model does not fit the device's kernels.
std::string fit_line(const Config& config, DeviceChoice device, PassSet passes, const MemoryPlan& plan);

/// Allocates the arena on the device. `schedules` must outlive the executor.
std::unique_ptr<Executor> make_executor(DeviceChoice device, const Schedules& schedules, const MemoryPlan& plan);

}  // namespace coda
