// The second stage of reductions whose first stage was a tile of a GEMM. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// rstd = 1/sqrt(Σ_tiles square / width + eps).
struct FinishRstd {
    In<Partials> square;     // (tiles, M) statistic
    Out<Vector> rstd;        // (1, M) statistic
    std::int64_t width = 0;  // d, the width of the normalised vector
    double eps = 0;

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FinishRstd";
    static constexpr auto operands = fields(field("square", &FinishRstd::square), field("rstd", &FinishRstd::rstd));

    double flops() const { return static_cast<double>(square.count()); }
};

/// sum = Σ_tiles partials, in a fixed order: finishes a row statistic ("dot").
struct FinishRowSum {
    In<Partials> partials;  // (tiles, M) statistic
    Out<Vector> sum;        // (1, M) statistic

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FinishRowSum";
    static constexpr auto operands =
        fields(field("partials", &FinishRowSum::partials), field("sum", &FinishRowSum::sum));

    double flops() const { return static_cast<double>(partials.count()); }
};

/// grad (+)= Σ_tiles partials / norm_factor(gamma), in a fixed order: finishes the gradient of a norm's weight. The
/// division is needed because the partials come from a GEMM with the matrix that carries the weight.
struct FinishColumnSum {
    In<Partials> partials;    // (tiles, N) statistic
    In<Vector> gamma;         // (1, N) master, optional (absent: 1)
    Accumulate<Vector> grad;  // (1, N) gradient

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FinishColumnSum";
    static constexpr auto operands =
        fields(field("partials", &FinishColumnSum::partials), field("gamma", &FinishColumnSum::gamma),
               field("grad", &FinishColumnSum::grad));

    double flops() const { return static_cast<double>(partials.count()); }
};

}  // namespace coda
