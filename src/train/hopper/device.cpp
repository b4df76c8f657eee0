// The GPU of this machine, asked before anything else touches it.
#include <cuda_runtime.h>

#include "kernels/error.h"
#include "kernels/hopper/sm90/check.h"
#include "src/train/hopper_executor.h"

namespace coda {

namespace {

std::string version_text(int version) { return text(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::optional<std::string> gpu_problem() {
    int driver = 0, runtime = 0, count = 0;
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)";
    const cudaError_t status = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (status == cudaErrorInsufficientDriver)
        return text("the NVIDIA driver supports CUDA ", version_text(driver), ", older than this build's CUDA ",
                    version_text(runtime), "; update the driver");
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return "there is an NVIDIA driver but no GPU that it may use (see nvidia-smi and CUDA_VISIBLE_DEVICES)";
    if (status != cudaSuccess)
        return text("the GPU cannot be asked: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
    int device = 0;
    cudaDeviceProp properties{};
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return "the GPU does not answer (see nvidia-smi)";
    if (properties.major != 9 || properties.minor != 0)
        return text("the GPU, ", properties.name, ", has compute capability ", properties.major, ".", properties.minor,
                    "; the kernels are for 9.0 alone (H100, H200, GH200)");
    return std::nullopt;
}

DeviceMemory device_memory() {
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    // The context exists by now and is not in `free`; kernels, graphs and staging are still to come.
    constexpr std::int64_t kStillToCome = std::int64_t{300} << 20;
    return {static_cast<std::int64_t>(total), static_cast<std::int64_t>(free) - kStillToCome};
}

}  // namespace coda
