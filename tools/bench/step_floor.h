// The floor of a training step: the GEMMs of its schedule by cuBLASLt and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "kernels/cases/buffers.h"
#include "kernels/core/memory.h"
#include "kernels/hopper/run.h"
#include "kernels/oracle/cublaslt.h"
#include "src/model/schedules.h"

namespace coda::bench {

using namespace cases;

/// One CUDA graph of the bare GEMMs of a schedule's ops, in its order, each by the fastest of 8 heuristics. It runs on
/// the step's own buffers and overwrites activations and gradients there, never weights.
class GemmFloor {
  public:
    /// `memory` is the executor's, whose passes must not run while this does. Throws Error where libcublasLt is absent.
    GemmFloor(const Schedule& schedule, const Memory& memory);
    ~GemmFloor();
    GemmFloor(const GemmFloor&) = delete;
    GemmFloor& operator=(const GemmFloor&) = delete;

    /// Fills every operand except the weights with random normal numbers; run() leaves numbers. Needed once after each
    /// step: buffers share their bytes over a step, so an operand may hold bits of an fp32 or of another tensor, and
    /// GEMMs of NaN draw less power than GEMMs of numbers.
    void fill();

    /// Runs all GEMMs and waits for them.
    void run();

  private:
    struct Span {
        std::byte *begin, *end;
    };

    static std::vector<Span> merged(std::vector<Span> spans);

    oracle::CublasLt cublas_;
    std::vector<Span> operands_;  // activations and gradients, apart from each other
    void* spare_ = nullptr;       // for GEMMs whose op keeps no result of their shape
    cudaStream_t stream_{};
    cudaGraphExec_t graph_{};
};

}  // namespace coda::bench
