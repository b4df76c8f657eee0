// The plain GEMM. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// out = acc rstd, or out += acc rstd. With rstd it is K5.
struct Linear {
    In<Matrix> a;            // (M, K) storage
    In<Matrix> w;            // (N, K) or (K, N) storage, see layout
    In<Vector> rstd;         // (1, M) statistic, optional (absent: 1)
    Accumulate<Matrix> out;  // (M, N) storage or gradient
    WeightLayout layout = WeightLayout::out_in;

    static constexpr Traits traits{Trait::layout, Trait::result, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "Linear";
    static constexpr auto operands = fields(field("a", &Linear::a), field("w", &Linear::w),
                                            field("rstd", &Linear::rstd), field("out", &Linear::out));

    View result() const { return out; }
    TensorScalars scalars_of_a() const { return {.times = rstd}; }
};

}  // namespace coda
