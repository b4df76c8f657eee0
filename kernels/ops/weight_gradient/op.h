// The wgrad of a projection. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// grad (+)= alpha dyᵀ x ⊙ gamma, with gamma over the columns. For a projection of the normalised residual stream, x is
/// the stream itself, dy carries the factor rstd, and grad belongs to the matrix without the norm's weight.
///
/// FP8 factors are transposed codes, (out, M) and (in, M) with M a multiple of 16, their tokens in the same order
/// (ColumnOrder), which then does not matter to the sum. `undo` stands for alpha, which is absent. Sums of the tensor
/// cores are promoted (f8_promotion).
struct WeightGradient {
    In<Matrix> dy;            // (M, out) storage, or FP8 (out, M)
    Factor x;                 // (M, in) storage, or f8e4m3 (in, M)
    In<Vector> gamma;         // (1, in) master, optional (absent: 1)
    In<Scalar> alpha;         // statistic, optional (absent: 1)
    Accumulate<Matrix> grad;  // (out, in) gradient
    InOut<Scratch> scratch;   // scratch_bytes(), optional where that is 0

    static constexpr Traits traits{Trait::work,      Trait::flops,    Trait::contraction, Trait::scratch_bytes,
                                   Trait::tolerance, Trait::takes_f8, Trait::storage_only};
    static constexpr const char* name = "WeightGradient";
    static constexpr auto operands =
        fields(field("dy", &WeightGradient::dy), field("x", &WeightGradient::x), field("gamma", &WeightGradient::gamma),
               field("alpha", &WeightGradient::alpha), field("grad", &WeightGradient::grad),
               field("scratch", &WeightGradient::scratch));

    static constexpr Work work = Work::gemm;
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only = fields(field("alpha", &WeightGradient::alpha));
    /// Tokens.
    std::int64_t contraction() const { return is_f8(dy.dtype) ? dy.cols : dy.rows; }
    double flops() const { return 2.0 * static_cast<double>(contraction()) * static_cast<double>(grad.count()); }
    std::optional<Tolerance> tolerance(std::string_view, DType) const {
        if (!is_f8(dy.dtype)) return std::nullopt;
        return f8_product_tolerance(contraction(), f8_promotion(contraction(), SumOver::tokens), SumOver::tokens,
                                    false);
    }

    /// The number of parts into which the sum over tokens is cut, so that a gradient of few tiles does not leave most
    /// of the GPU idle: 1, or the number with the least expected time (split.h). Each part's sum is kept in scratch, in
    /// fp32, and the parts are added in order.
    std::int64_t parts() const;
    std::int64_t scratch_bytes() const;
};

}  // namespace coda
