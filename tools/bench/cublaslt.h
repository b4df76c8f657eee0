// cuBLASLt as the yardstick: a bare GEMM of the same shape, majors and output type. Loaded at first use.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "kernels/hopper/run.h"
#include "tools/bench/gemm_cases.h"

namespace coda::bench {

/// Throws Error, naming the library, where libcublasLt.so.13 and .12 cannot be loaded.
class CublasLt {
  public:
    CublasLt();
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    /// The product of a case's a and b into `out` (row-major, M x N), by the fastest of up to 8 heuristics, each timed
    /// with a few launches. Workspace 64 MiB.
    hopper::Launch product(const GemmCase& made, const Memory& memory, void* out);

  private:
    struct Api;
    std::unique_ptr<Api> api_;
};

}  // namespace coda::bench
