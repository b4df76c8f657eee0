// The floor of a training step: the products of its schedule by cuBLASLt and nothing else.
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

/// One CUDA graph of the bare product of every GEMM op of a schedule, in its order, on the step's own buffers, where it
/// overwrites activations and gradients, never weights. Each by the fastest of 8 heuristics.
class ProductFloor {
  public:
    /// `memory` is the executor's, whose passes must not run while this does. Throws Error where libcublasLt is absent.
    ProductFloor(const Schedule& schedule, const Memory& memory);
    ~ProductFloor();
    ProductFloor(const ProductFloor&) = delete;
    ProductFloor& operator=(const ProductFloor&) = delete;

    /// Fills every operand but the weights with random normal numbers. What a step leaves there is not all of it
    /// numbers: buffers share their bytes over a step, so bits of an fp32 or of another tensor can be an operand's, and
    /// products of NaN draw less power than those of numbers. Needed once after each step; run() leaves numbers.
    void fill();

    /// Runs all products and waits for them.
    void run();

  private:
    struct Span {
        std::byte *begin, *end;
    };

    static std::vector<Span> merged(std::vector<Span> spans);

    oracle::CublasLt cublas_;
    std::vector<Span> operands_;  // activations and gradients, apart from each other
    void* spare_ = nullptr;       // for products whose op keeps no result of their shape
    cudaStream_t stream_{};
    cudaGraphExec_t graph_{};
};

}  // namespace coda::bench
