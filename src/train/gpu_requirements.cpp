#include "src/train/gpu_requirements.h"

#include "kernels/core/error.h"

namespace coda {

namespace {

std::string version_text(CudaVersion version) { return text(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::optional<std::string> gpu_problem(const GpuFacts& facts) {
    if (facts.driver == 0) return "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)";
    switch (facts.answer) {
        case DriverAnswer::too_old:
            return text("the NVIDIA driver supports CUDA ", version_text(facts.driver),
                        ", older than this build's CUDA ", version_text(facts.runtime), "; update the driver");
        case DriverAnswer::no_gpu:
            return "there is an NVIDIA driver but no GPU that it may use (see nvidia-smi and CUDA_VISIBLE_DEVICES)";
        case DriverAnswer::failed: return text("the GPU cannot be asked: ", facts.failure);
        case DriverAnswer::unresponsive: return "the GPU does not answer (see nvidia-smi)";
        case DriverAnswer::gpus: break;
    }
    if (facts.major != 9 || facts.minor != 0)
        return text("the GPU, ", facts.name, ", has compute capability ", facts.major, ".", facts.minor,
                    "; the kernels are for 9.0 alone (H100, H200, GH200)");
    return std::nullopt;
}

}  // namespace coda
