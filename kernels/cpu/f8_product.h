// The GEMM of a linear op's FP8 form on the CPU.
#pragma once

#include <algorithm>

#include "kernels/cpu/float8.h"

namespace coda::cpu {

/// acc = a wᵀ in fp32, of the exact values of a (M, K) and w (N, K). Has the members of LinearProduct.
class F8Product {
  public:
    std::int64_t m, n, k;

    F8Product(const Operands& operands, const Memory& memory, const View& a, const View& w)
        : m(a.rows), n(w.rows), k(a.cols), a_(operands, memory, "a", a), w_(operands, memory, "w", w) {
        require(m > 0 && n > 0 && k > 0 && w.cols == k, operands.op(), ": a is (", m, ", ", k, ") and w (", n, ", ",
                w.cols, "), FP8 operands with K in their columns");
    }

    /// Calls epilogue(tile) on macro-tiles that begin at multiples of row_unit and column_unit.
    template <class Compute, class Epilogue>
    void run(std::int64_t row_unit, std::int64_t column_unit, const Epilogue& epilogue) const {
        gemm<Compute>({m, n, k, std::min(row_unit, m), std::min(column_unit, n)}, a_.operand(), w_.operand(), epilogue);
    }

  private:
    DecodedMatrix a_, w_;
};

/// In place of a factor of 1. NOTE: a multiplication by 1 changes no value, but how the compiler orders a loop's sum.
struct NoFactor {
    template <class Compute>
    friend Compute operator*(NoFactor, Compute value) {
        return value;
    }
};

/// The factor that undoes the scales of FP8 operands.
inline float f8_factor(const Operands& operands, const char* name, const View& view) {
    return *operands.get<float>(name, view, 1, 1);
}

}  // namespace coda::cpu
