#include "src/engine/gpu_requirements.h"

#include "kernels/core/error.h"
#include "src/config/shell_quote.h"

namespace coda {

namespace {

std::string version_text(CudaVersion version) { return text(version / 1000, ".", version % 1000 / 10); }

std::string no_gpu_text(const GpuFacts& facts) {
    if (facts.sign.empty())
        return "there is an NVIDIA driver but no GPU that it may use (see nvidia-smi and CUDA_VISIBLE_DEVICES)";
    if (facts.visible_devices)
        return text("CUDA_VISIBLE_DEVICES=", quote(*facts.visible_devices), " hides the NVIDIA GPU of this machine (",
                    facts.sign, ")");
    return text("there is an NVIDIA GPU (", facts.sign, ") but none that the driver may use (see nvidia-smi)");
}

std::string text_of(const GpuFacts& facts) {
    const std::string here = facts.sign.empty() ? "" : text(", and there is an NVIDIA GPU (", facts.sign, ")");
    if (!facts.kernels)
        return "this build has no kernels for a GPU (build the preset hopper, which needs nvcc >= 12.4)" + here;
    if (facts.driver == 0) return "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)" + here;
    switch (facts.answer) {
        case DriverAnswer::too_old:
            return text("the NVIDIA driver supports CUDA ", version_text(facts.driver),
                        ", older than this build's CUDA ", version_text(facts.runtime), "; update the driver");
        case DriverAnswer::no_gpu: return no_gpu_text(facts);
        case DriverAnswer::failed: return text("the GPU cannot be asked: ", facts.failure);
        case DriverAnswer::unresponsive: return "the GPU does not answer (see nvidia-smi)";
        case DriverAnswer::gpus: break;
    }
    if (facts.major != 9 || facts.minor != 0)
        return text("the GPU, ", facts.name, ", has compute capability ", facts.major, ".", facts.minor,
                    "; the kernels are only for 9.0 (H100, H200, GH200)");
    return {};
}

}  // namespace

std::optional<GpuProblem> gpu_problem(const GpuFacts& facts) {
    const std::string what = text_of(facts);
    if (what.empty()) return std::nullopt;
    // The driver knows of GPUs that this process sees no sign of.
    const bool answered = facts.kernels && facts.driver != 0 &&
                          (facts.answer == DriverAnswer::gpus || facts.answer == DriverAnswer::unresponsive);
    return GpuProblem{what, answered || !facts.sign.empty()};
}

std::string why_not_gpu(const std::optional<GpuProblem>& machine, const std::optional<std::string>& configuration) {
    if (machine) return machine->gpu_is_here ? machine->what : "";
    return configuration.value_or("");
}

}  // namespace coda
