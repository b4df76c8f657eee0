// The dgrad of a projection and the backward pass of the norm before it. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// K9, acc = a w with w (K, N). With dz the gradient of the projection's output z, a and dot come in one of two forms:
///   without scale   a = dz rstd, as the op that stored a wrote it, and dot = Σ z dz rstd per row
///   with scale      a = dz / scale, and dot = Σ z dz per row
/// Then
///   t = alpha acc,             c = alpha dot / N             without scale
///   t = alpha scale rstd acc,  c = alpha rstd dot / N        with scale
///   dx (+)= t - x rstd c;  n = scale rstd x;  per column and row tile Σ t ⊙ x, and Σ dx of dx with its new value.
/// Σ dx is the gradient of the bias of the projection that closed the residual branch before (FinishColumnSums).
/// w carries the norm's weight gamma, so t has it, and Σ t ⊙ x is the gradient of gamma times gamma (FinishColumnSums).
/// The wgrad of the same projection is aᵀ x ⊙ gamma without scale, so it reads x itself (WeightGradient::gamma); with
/// scale it is aᵀ n ⊙ gamma.
///
/// Where x is what the projection reads, with no norm between them, rstd, dot and dgamma are absent, and the form is
/// the one with scale:
///   t = alpha scale acc;  dx (+)= t;  n = scale x
///
/// FP8 factors, K a multiple of 16, are a (M, K), f8e4m3 or f8e5m2, and w (N, K), the transposed copy of the matrix in
/// f8e4m3, and a stands for dz itself: t = undo rstd acc, c = rstd dot / N with dot = Σ z dz. With them dx may be
/// rounded too, for the two GEMMs that read it next: with the codes and the amax of QuantiseF8, from dx as stored in
/// bf16. M and N are then multiples of 16.
struct LinearRmsBackward {
    In<Matrix> a;           // (M, K): gradient of the projection's output, times rstd or over scale
    Factor w;               // (K, N) storage, or FP8 (N, K)
    In<Matrix> x;           // (M, N) storage: the residual stream that was normalised
    In<Vector> rstd;        // (1, M) statistic, optional
    In<Vector> dot;         // (1, M) statistic, with rstd only
    In<Scalar> alpha;       // statistic, optional (absent: 1)
    In<Vector> scale;       // (1, M) statistic, optional
    Accumulate<Matrix> dx;  // (M, N) storage: gradient of the residual stream
    Rounded dx_codes = {};  // optional; codes in both layouts
    Out<Matrix> n;          // (M, N) storage, optional
    Out<Partials> dgamma;   // (tiles over M, N) statistic, with rstd only
    Out<Partials> dx_sum;   // (tiles over M, N) statistic, optional, from dx before rounding
    std::int64_t tile = 0;  // rows per partial

    static constexpr Traits traits{Trait::layout,       Trait::result,       Trait::tolerance, Trait::takes_f8,
                                   Trait::storage_only, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "LinearRmsBackward";
    static constexpr RoundedNames dx_names{"dx_scale", "dx_f8", "dx_f8_t", "dx_amax"};
    static constexpr auto operands =
        fields(field("a", &LinearRmsBackward::a), field("w", &LinearRmsBackward::w), field("x", &LinearRmsBackward::x),
               field("rstd", &LinearRmsBackward::rstd), field("dot", &LinearRmsBackward::dot),
               field("alpha", &LinearRmsBackward::alpha), field("scale", &LinearRmsBackward::scale),
               field("dx", &LinearRmsBackward::dx), field(dx_names, &LinearRmsBackward::dx_codes),
               field("n", &LinearRmsBackward::n), field("dgamma", &LinearRmsBackward::dgamma),
               field("dx_sum", &LinearRmsBackward::dx_sum));
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only =
        fields(field("alpha", &LinearRmsBackward::alpha), field("scale", &LinearRmsBackward::scale),
               field("n", &LinearRmsBackward::n), field("dx_sum", &LinearRmsBackward::dx_sum));

    static constexpr WeightLayout layout = WeightLayout::in_out;
    static constexpr std::int64_t kTileRows = 64;  // rows per partial
    View result() const { return dx; }
    TensorScalars scalars_of_a() const {
        return scale ? TensorScalars{.times = scale, .factor = alpha}
                     : TensorScalars{.over = is_f8(a.dtype) ? View{} : View{rstd}, .factor = alpha};
    }
    /// Elements of K after which the sum of FP8 products goes to fp32; 0: never.
    std::int64_t promotion() const { return f8_promotion(a.cols, SumOver::features); }
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (!is_f8(a.dtype)) return std::nullopt;
        if (operand == "dx_f8" || operand == "dx_f8_t" || operand == "dx_amax") return kExact;  // next to dx
        return f8_product_tolerance(a.cols, promotion(), SumOver::features, operand == "dx");
    }
};

}  // namespace coda
