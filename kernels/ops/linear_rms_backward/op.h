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
///   dx (+)= t - x rstd c;  n = scale rstd x;  per column and row tile Σ t ⊙ x.
/// w carries the norm's weight gamma, so t has it, and Σ t ⊙ x is the gradient of gamma times gamma (FinishColumnSum).
/// The wgrad of the same projection is aᵀ x ⊙ gamma without scale, so it reads x itself (WeightGradient::gamma); with
/// scale it is aᵀ n ⊙ gamma.
///
/// FP8 form: a (M, K) is f8e4m3 or f8e5m2 and w (N, K), the transposed copy of the matrix, f8e4m3, K a multiple of 16,
/// and a stands for dz itself: t = f8_scale rstd acc, c = rstd dot / N with dot = Σ z dz. `f8_scale` undoes the scales
/// of a and w. alpha, scale and n are absent. With `promotion`, the tensor cores' sums of that many elements of K are
/// added in fp32. Optionally it makes the FP8 copies of dx for the two GEMMs that read it next, with the codes and the
/// amax of QuantiseF8, from dx as stored in bf16:
///   dx_f8 = f8(dx_scale dx);  dx_f8_t = dx_f8ᵀ;  dx_amax = max(dx_amax, |dx|)
/// All four operands are then there, dx_scale is a power of two, and M and N are multiples of 16.
struct LinearRmsBackward {
    In<Matrix> a;                // (M, K) storage: gradient of the projection's output, times rstd or over scale
    In<Matrix> w;                // (K, N) storage; of the FP8 form (N, K)
    In<Scalar> f8_scale = {};    // statistic; of the FP8 form alone
    In<Matrix> x;                // (M, N) storage: the residual stream that was normalised
    In<Vector> rstd;             // (1, M) statistic
    In<Vector> dot;              // (1, M) statistic
    In<Scalar> alpha;            // statistic, optional (absent: 1)
    In<Vector> scale;            // (1, M) statistic, optional
    Accumulate<Matrix> dx;       // (M, N) storage: gradient of the residual stream
    In<Scalar> dx_scale = {};    // statistic, optional. It and the next three: of the FP8 form alone
    Out<Matrix> dx_f8 = {};      // (M, N) f8e4m3, optional
    Out<Matrix> dx_f8_t = {};    // (N, M) f8e4m3, paired, optional
    InOut<Scalar> dx_amax = {};  // statistic, at least 0, optional
    Out<Matrix> n;               // (M, N) storage, optional
    Out<Partials> dgamma;        // (tiles over M, N) statistic
    std::int64_t tile = 0;       // rows per partial
    std::int64_t promotion = 0;  // elements of K; 0: never. Of the FP8 form alone

    static constexpr const char* name = "LinearRmsBackward";
    static constexpr auto operands = std::tuple{field("a", &LinearRmsBackward::a),
                                                field("w", &LinearRmsBackward::w),
                                                field("f8_scale", &LinearRmsBackward::f8_scale),
                                                field("x", &LinearRmsBackward::x),
                                                field("rstd", &LinearRmsBackward::rstd),
                                                field("dot", &LinearRmsBackward::dot),
                                                field("alpha", &LinearRmsBackward::alpha),
                                                field("scale", &LinearRmsBackward::scale),
                                                field("dx", &LinearRmsBackward::dx),
                                                field("dx_scale", &LinearRmsBackward::dx_scale),
                                                field("dx_f8", &LinearRmsBackward::dx_f8),
                                                field("dx_f8_t", &LinearRmsBackward::dx_f8_t),
                                                field("dx_amax", &LinearRmsBackward::dx_amax),
                                                field("n", &LinearRmsBackward::n),
                                                field("dgamma", &LinearRmsBackward::dgamma)};

    static constexpr WeightLayout layout = WeightLayout::in_out;
    static constexpr std::int64_t kTileRows = 64;    // rows per partial of dgamma
    static constexpr std::int64_t kF8Multiple = 16;  // of M and N, with the copies of dx
    View result() const { return dx; }
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (!is_f8(a.dtype)) return std::nullopt;
        if (operand == "dx_f8" || operand == "dx_f8_t" || operand == "dx_amax") return kExact;  // beside dx
        return f8_product_tolerance(a.cols, promotion, SumOver::features, operand == "dx");
    }
};

}  // namespace coda
