// The gate and up projections with SwiGLU, and the dgrad of the down projection with SwiGLU's gradient, from and to
// FP8. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// LinearSwiglu of FP8 operands, z = scale a wᵀ, which writes y for the two GEMMs that read it: by rows for the down
/// projection, and transposed for its wgrad. y is computed from g and u rounded to bf16 as in z, whether z is kept or
/// not. An element is rounded once, from y_scale y, and its code written to both.
///
///   z = scale acc, columns 2i, 2i+1 = (g, u);  y = f8(y_scale silu(g) u);  y_t = yᵀ;  y_amax = max(y_amax, |silu(g)
///   u|)
///
/// With y_t, M is a multiple of 16, since it keeps its tokens in pairs of each 16 (ColumnOrder::paired). The scales are
/// powers of two. Values beyond the format's largest number take that number; y_amax says whether there were any.
struct LinearSwigluF8 {
    In<Matrix> a;          // (M, K) f8e4m3, normalised
    In<Matrix> w;          // (2f, K) f8e4m3, gate and up rows interleaved
    In<Scalar> scale;      // statistic: undoes the scales of a and w
    Out<Matrix> z;         // (M, 2f) storage, optional
    In<Scalar> y_scale;    // statistic
    Out<Matrix> y;         // (M, f) f8e4m3
    Out<Matrix> y_t;       // (f, M) f8e4m3, paired, optional
    InOut<Scalar> y_amax;  // statistic, at least 0

    static constexpr const char* name = "LinearSwigluF8";
    static constexpr auto operands = std::tuple{field("a", &LinearSwigluF8::a),
                                                field("w", &LinearSwigluF8::w),
                                                field("scale", &LinearSwigluF8::scale),
                                                field("z", &LinearSwigluF8::z),
                                                field("y_scale", &LinearSwigluF8::y_scale),
                                                field("y", &LinearSwigluF8::y),
                                                field("y_t", &LinearSwigluF8::y_t),
                                                field("y_amax", &LinearSwigluF8::y_amax)};

    static constexpr std::int64_t kTokenMultiple = 16;  // of M, with y_t
    View result() const { return z; }
    /// Where the two accumulators lie on either side of a tie of bf16, gate or up differs by 2^-7 of itself, and y by
    /// 2.3 times that where both do: 1.8e-2 of the largest, and 6e-3 RMS, which disappears beside FP8's rounding.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (operand == "z") return f8_product_tolerance(a.cols, true);
        if (operand == "y_t") return kExact;  // beside y
        if (operand == "y") return Tolerance{kStoredF8.rms, kStoredF8.largest + 2e-2};
        return Tolerance{2e-2, 2e-2};  // y_amax is of one element, before it is rounded
    }
};

/// LinearSwigluBackward of FP8 operands, dy = scale a wᵀ, which writes dz for the two GEMMs that read it: by rows for
/// the dgrad, and transposed for the wgrad. An element is rounded once, from dz_scale dz, and its code written to both.
/// dz carries no factor rstd: x̂, which the wgrad reads, has been normalised.
///
///   dy = scale acc;  dg = dy u (σ + s (1 - σ));  du = dy s;  y = s u;  per row and tile Σ g dg + u du
///   dz = f8(dz_scale (dg, du)) interleaved;  dz_t = dzᵀ;  dz_amax = max(dz_amax, |dg|, |du|);  y_t = f8(y_scale y)ᵀ
///
/// M is a multiple of 16, since dz_t and y_t keep their tokens in pairs of each 16 (ColumnOrder::paired). The scales
/// are powers of two. Values beyond the format's largest number take that number; dz_amax says whether there were any.
struct LinearSwigluBackwardF8 {
    In<Matrix> a;           // (M, K) f8e4m3
    In<Matrix> w;           // (f, K) f8e4m3: the transposed copy of the matrix
    In<Scalar> scale;       // statistic: undoes the scales of a and w
    In<Matrix> z;           // (M, 2f) storage
    In<Scalar> dz_scale;    // statistic
    Out<Matrix> dz;         // (M, 2f) f8e4m3
    Out<Matrix> dz_t;       // (2f, M) f8e4m3, paired
    InOut<Scalar> dz_amax;  // statistic, at least 0
    In<Scalar> y_scale;     // statistic, optional, with y_t
    Out<Matrix> y_t;        // (f, M) f8e4m3, paired, optional
    Out<Partials> dot;      // (tiles over f, M) statistic, from dg, du before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearSwigluBackwardF8";
    static constexpr auto operands = std::tuple{field("a", &LinearSwigluBackwardF8::a),
                                                field("w", &LinearSwigluBackwardF8::w),
                                                field("scale", &LinearSwigluBackwardF8::scale),
                                                field("z", &LinearSwigluBackwardF8::z),
                                                field("dz_scale", &LinearSwigluBackwardF8::dz_scale),
                                                field("dz", &LinearSwigluBackwardF8::dz),
                                                field("dz_t", &LinearSwigluBackwardF8::dz_t),
                                                field("dz_amax", &LinearSwigluBackwardF8::dz_amax),
                                                field("y_scale", &LinearSwigluBackwardF8::y_scale),
                                                field("y_t", &LinearSwigluBackwardF8::y_t),
                                                field("dot", &LinearSwigluBackwardF8::dot)};

    static constexpr std::int64_t kTileColumns = 128;   // columns per partial of dot
    static constexpr std::int64_t kTokenMultiple = 16;  // of M
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (operand == "dz_t") return kExact;  // beside dz
        if (operand == "dz") return kStoredF8;
        if (operand == "y_t") return kStoredF8;
        // dot and dz_amax are of dz before it is rounded, whose error is that of dy. dz_amax is one element: its error
        // is no RMS of many but up to four times that.
        const Tolerance sum = f8_product_tolerance(a.cols, false);
        return operand == "dz_amax" ? Tolerance{sum.largest, sum.largest} : sum;
    }
};

}  // namespace coda
