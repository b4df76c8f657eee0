// What --device cuda needs of a machine, and the one line that says what it lacks.
#pragma once

#include <optional>
#include <string>

namespace coda {

/// A CUDA version as CUDA has it: 1000 major + 10 minor.
using CudaVersion = int;

/// How the driver answered when it was asked for GPUs.
enum class DriverAnswer {
    gpus,          // there is one or more
    no_gpu,        // none that the process may use
    too_old,       // the driver is older than the run-time library
    failed,        // anything else; `failure` says what
    unresponsive,  // there is a GPU, and it does not say what it is
};

/// What was found. `name` and the compute capability describe the current GPU, if one answers.
struct GpuFacts {
    bool kernels = true;                         // whether this build has any
    std::string sign;                            // nvidia_gpu_sign
    std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
    CudaVersion driver = 0;                      // 0: no driver
    CudaVersion runtime = 0;
    DriverAnswer answer = DriverAnswer::gpus;
    std::string failure;
    std::string name;
    int major = 0, minor = 0;
};

/// Why this machine cannot run the kernels. `what` is without "--device" and without a full stop: callers put it into
/// their sentence.
struct GpuProblem {
    std::string what;
    bool gpu_is_here = false;
};

/// Nothing where the machine can.
std::optional<GpuProblem> gpu_problem(const GpuFacts& facts);

/// Why --device auto is the CPU although a GPU is here: the machine's problem, or the configuration's. Empty without
/// such a problem, or without a GPU.
std::string why_not_gpu(const std::optional<GpuProblem>& machine, const std::optional<std::string>& configuration);

}  // namespace coda
