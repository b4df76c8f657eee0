// Bare GEMMs by cuBLASLt: the oracle of the GEMM ops and the reference of the benchmark. Loaded at first use; no
// training step calls it. Host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/core/dtype.h"
#include "kernels/core/operand.h"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/launch.h"

namespace coda::oracle {

/// One GEMM: out (m, n) = A B or out += A B over k. Operands are both bf16, both f32 (then multiplied in fp32) or both
/// FP8; accumulation is in fp32, of FP8 in the tensor cores' 14 bits where it is fast and with promotion where it is
/// not. FP8 operands are K-major. A K-major operand is stored as (m, k) or (n, k), an MN-major one as (k, m) or (k, n);
/// ld is in elements. out is row-major, bf16 or f32, of rows without gaps where ld_out is 0.
struct Product {
    const void *a = nullptr, *b = nullptr;
    void* out = nullptr;
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t lda = 0, ldb = 0, ld_out = 0;
    hopper::Major major_a = hopper::Major::k, major_b = hopper::Major::k;
    DType in_dtype = DType::bf16;
    DType out_dtype = DType::f32;
    Beta beta = Beta::overwrite;
    bool fast_accumulation = false;
};

/// Not thread-safe: all GEMMs share one work space of 64 MiB, so they must run on one stream.
class CublasLt {
  public:
    /// Throws Error, naming the library, where libcublasLt.so.13 and .12 cannot be loaded.
    CublasLt();
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    /// The GEMM, ready to launch, by the fastest of up to `candidates` algorithms that the heuristic proposes. Each is
    /// timed with a few launches; with 1 candidate the first is taken untimed. A GEMM of the same shape, layout and
    /// alignment is not timed again. Timing runs the GEMM, so one that accumulates must have 1 candidate. The result
    /// must not outlive this object. Throws Error where cuBLASLt has no algorithm.
    hopper::Launch product(const Product& product, int candidates);

  private:
    struct Api;
    std::shared_ptr<Api> api_;
};

}  // namespace coda::oracle
