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

/// What was found. `name` and the compute capability are of the current GPU, where there is one that answers.
struct GpuFacts {
    CudaVersion driver = 0;  // 0: no driver
    CudaVersion runtime = 0;
    DriverAnswer answer = DriverAnswer::gpus;
    std::string failure;
    std::string name;
    int major = 0, minor = 0;
};

/// Why this machine cannot run the kernels; nothing where it can. Without "--device" and without a full stop: callers
/// put it into their sentence.
std::optional<std::string> gpu_problem(const GpuFacts& facts);

}  // namespace coda
