// The floor of a training step: the products of its schedule by cuBLASLt and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/hopper/run.h"
#include "kernels/memory.h"
#include "kernels/oracle/cublaslt.h"
#include "src/model/schedules.h"

namespace coda::bench {

/// One CUDA graph of the bare product of every GEMM op of a schedule, in its order, on the step's own operands, which
/// it overwrites: activations and gradients, never weights. Each by the fastest of 8 heuristics.
class ProductFloor {
  public:
    /// `memory` is the executor's, whose passes must not run while this does. Throws Error where libcublasLt is absent.
    ProductFloor(const Schedule& schedule, const Memory& memory);
    ~ProductFloor();
    ProductFloor(const ProductFloor&) = delete;
    ProductFloor& operator=(const ProductFloor&) = delete;

    /// Runs all products and waits for them.
    void run();

  private:
    oracle::CublasLt cublas_;
    void* spare_ = nullptr;  // for products whose op keeps no result of their shape
    cudaStream_t stream_{};
    cudaGraphExec_t graph_{};
};

}  // namespace coda::bench
