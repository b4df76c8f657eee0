// The GPU of this machine, asked before anything else touches it.
#include <cuda_runtime.h>

#include <cstdlib>

#include "kernels/core/error.h"
#include "kernels/hopper/sm90/check.h"
#include "src/engine/gpu_presence.h"
#include "src/engine/gpu_requirements.h"
#include "src/engine/hopper_executor.h"

namespace coda {

namespace {

GpuFacts gpu_facts() {
    GpuFacts facts;
    facts.sign = nvidia_gpu_sign();
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
    cudaRuntimeGetVersion(&facts.runtime);
    if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
    if (facts.driver == 0) return facts;
    int count = 0, device = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (status != cudaSuccess || count == 0) {
        facts.answer = status == cudaErrorInsufficientDriver                  ? DriverAnswer::too_old
                       : status == cudaErrorNoDevice || status == cudaSuccess ? DriverAnswer::no_gpu
                                                                              : DriverAnswer::failed;
        facts.failure = text(cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
        return facts;
    }
    cudaDeviceProp properties{};
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        facts.answer = DriverAnswer::unresponsive;
        return facts;
    }
    facts.name = properties.name;
    facts.major = properties.major;
    facts.minor = properties.minor;
    return facts;
}

}  // namespace

std::optional<GpuProblem> gpu_problem() { return gpu_problem(gpu_facts()); }

void select_gpu(int device) {
    int count = 0;
    CUDA_CHECK(cudaGetDeviceCount(&count));
    require(device < count, "this rank takes GPU ", device, ", counted from 0, and the process sees ", count,
            ": start as many ranks per machine as it has GPUs (see nvidia-smi and CUDA_VISIBLE_DEVICES)");
    CUDA_CHECK(cudaSetDevice(device));
}

DeviceMemory device_memory() {
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    // The context exists by now and is not in `free`; kernels, graphs and staging are still to come.
    constexpr std::int64_t kStillToCome = std::int64_t{300} << 20;
    return {static_cast<std::int64_t>(total), static_cast<std::int64_t>(free) - kStillToCome};
}

}  // namespace coda
