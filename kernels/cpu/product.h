// The GEMM of a linear op on the CPU, of factors in storage or of FP8 codes.
#pragma once

#include <algorithm>

#include "kernels/core/factors.h"
#include "kernels/cpu/f8.h"
#include "kernels/cpu/gemm_operands.h"

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

/// Calls fn(Types<Storage, Compute>, operands, product, undo) with the op's GEMM. Codes give results of bf16 storage,
/// and `undo` is the scalar that undoes their scales; for operands in storage it is NoFactor.
template <class Op, class Fn>
void with_product(const Op& op, const Memory& memory, const Fn& fn) {
    const Operands operands(op.name, memory);
    if (has_codes(op)) {
        const float undo = *operands.get<float>("undo", second_factor(op).undo, 1, 1);
        return fn(Types<Bf16, float>{}, operands, F8Product(operands, memory, op.a, op.w), undo);
    }
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute> types) {
        WeightLayout layout = WeightLayout::out_in;
        if constexpr (Op::traits.has(Trait::layout)) layout = op.layout;
        fn(types, operands, LinearProduct<Storage>(operands, op.a, op.w, layout), NoFactor());
    });
}

}  // namespace coda::cpu
