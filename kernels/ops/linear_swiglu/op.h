// The gate and up projections with SwiGLU, and the dgrad of the down projection with SwiGLU's gradient. Notation:
// kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// K2, with rstd K6: w has gate and up rows interleaved, so columns 2i, 2i+1 of z = acc rstd are (g, u). y = silu(g) u
/// is computed from g and u rounded as in z, whether z is kept or not: recomputed from z, y has the same bits. z is
/// stored with the factor rstd, as the backward statistic Σ z dz needs it.
struct LinearSwiglu {
    In<Matrix> a;     // (M, K) storage
    In<Matrix> w;     // (2f, K) storage
    In<Vector> rstd;  // (1, M) statistic, optional (absent: 1)
    Out<Matrix> z;    // (M, 2f) storage, optional
    Out<Matrix> y;    // (M, f) storage, optional

    static constexpr const char* name = "LinearSwiglu";
    static constexpr auto operands =
        std::tuple{field("a", &LinearSwiglu::a), field("w", &LinearSwiglu::w), field("rstd", &LinearSwiglu::rstd),
                   field("z", &LinearSwiglu::z), field("y", &LinearSwiglu::y)};

    View result() const { return z; }
    /// y is computed from gate and up rounded to bf16. Where the two accumulators lie on either side of a tie, gate or
    /// up differs by 2^-7 of itself, and y by 1.1 times that, plus its own rounding.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        return operand == "y" ? std::optional(Tolerance{4e-3, 1.3e-2}) : std::nullopt;
    }
};

/// K10, dy = rstd a w with w (K, f) and (g, u) the column pairs of z; σ = sigmoid(g), s = g σ:
///   dg = dy u (σ + s (1 - σ));  du = dy s;  dz = (dg, du) interleaved;  y = s u;  per row and tile Σ g dg + u du.
/// rstd belongs to the norm before the GEMM that computed z: LinearRmsBackward and WeightGradient expect this factor in
/// dz. y has the bits that LinearSwiglu computed; absent where LinearSwiglu's y was kept.
struct LinearSwigluBackward {
    In<Matrix> a;       // (M, K) storage
    In<Matrix> w;       // (K, f) storage
    In<Matrix> z;       // (M, 2f) storage
    In<Vector> rstd;    // (1, M) statistic, optional (absent: 1)
    Out<Matrix> dz;     // (M, 2f) storage; may be z itself (a tile is loaded before it is stored)
    Out<Matrix> y;      // (M, f) storage, optional
    Out<Partials> dot;  // (tiles over f, M) statistic, from dg, du before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearSwigluBackward";
    static constexpr auto operands =
        std::tuple{field("a", &LinearSwigluBackward::a),    field("w", &LinearSwigluBackward::w),
                   field("z", &LinearSwigluBackward::z),    field("rstd", &LinearSwigluBackward::rstd),
                   field("dz", &LinearSwigluBackward::dz),  field("y", &LinearSwigluBackward::y),
                   field("dot", &LinearSwigluBackward::dot)};
    static constexpr auto in_place = std::tuple{&LinearSwigluBackward::z, &LinearSwigluBackward::dz};

    static constexpr WeightLayout layout = WeightLayout::in_out;
    static constexpr std::int64_t kTileColumns = 128;  // columns per partial of dot
    /// The first half of dz, as y may be absent.
    View result() const {
        View half = dz;
        half.cols = half.ld = dz.cols / 2;
        return half;
    }
};

}  // namespace coda
