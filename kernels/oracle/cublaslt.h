// Bare products by cuBLASLt: the oracle of the GEMM ops and the yardstick of the benchmark. Loaded at first use; no
// training step calls it. Host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/core/dtype.h"
#include "kernels/core/operand.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/descriptor.h"

namespace coda::oracle {

/// out (m, n) = A B or out += A B over k, operands both bf16 or both f32 (then multiplied in fp32), fp32 accumulation.
/// A K-major operand is stored as (m, k) or (n, k), an MN-major one as (k, m) or (k, n); ld in elements. out is
/// row-major without gaps, bf16 or f32.
struct Product {
    const void *a = nullptr, *b = nullptr;
    void* out = nullptr;
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t lda = 0, ldb = 0;
    hopper::Major major_a = hopper::Major::k, major_b = hopper::Major::k;
    DType in_dtype = DType::bf16;
    DType out_dtype = DType::f32;
    Beta beta = Beta::overwrite;
};

/// Not thread-safe: all products share one work space of 64 MiB, so they belong on one stream.
class CublasLt {
  public:
    /// Throws Error, naming the library, where libcublasLt.so.13 and .12 cannot be loaded.
    CublasLt();
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    /// The product, ready to launch, by the fastest of up to `candidates` heuristics, each timed with a few launches
    /// (1: the first one, untimed); a product of the same shape, layout and alignment is not timed again. Timing
    /// runs the product, so one that accumulates takes 1. Must not outlive this object. Throws Error where cuBLASLt has
    /// no algorithm.
    hopper::Launch product(const Product& product, int candidates);

  private:
    struct Api;
    std::shared_ptr<Api> api_;
};

}  // namespace coda::oracle
