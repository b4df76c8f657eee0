// The gate and up projections with SwiGLU, and the dgrad of the down projection with SwiGLU's gradient, from and to
// FP8. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// LinearSwiglu of FP8 operands, z = scale a wᵀ, which writes y for the two GEMMs that read it: by rows for the down
/// projection, and transposed for its wgrad. y is computed from g and u in fp32. z is kept for the backward pass alone,
/// in FP8 too, transposed, as LinearSwigluBackwardF8 stores dz_t in its place. An element is rounded once,
/// from y_scale y or z_scale z.
///
///   z = scale acc, columns 2i, 2i+1 = (g, u);  z_t = f8(z_scale z)ᵀ;    z_amax = max(z_amax, |g|, |u|)
///   y = f8(y_scale silu(g) u);                 y_t = yᵀ, equal codes;  y_amax = max(y_amax, |silu(g) u|)
///
/// M is a multiple of 16, since z_t and y_t keep their tokens in pairs of each 16 (ColumnOrder::paired). The scales
/// are powers of two. Values beyond the format's largest number take that number; the amax says whether there were any.
struct LinearSwigluF8 {
    In<Matrix> a;          // (M, K) f8e4m3, normalised
    In<Matrix> w;          // (2f, K) f8e4m3, gate and up rows interleaved
    In<Scalar> scale;      // statistic: undoes the scales of a and w
    In<Scalar> z_scale;    // statistic
    Out<Matrix> z_t;       // (2f, M) f8e4m3, paired
    InOut<Scalar> z_amax;  // statistic, at least 0
    In<Scalar> y_scale;    // statistic
    Out<Matrix> y;         // (M, f) f8e4m3
    Out<Matrix> y_t;       // (f, M) f8e4m3, paired
    InOut<Scalar> y_amax;  // statistic, at least 0

    static constexpr const char* name = "LinearSwigluF8";
    static constexpr auto operands = std::tuple{field("a", &LinearSwigluF8::a),
                                                field("w", &LinearSwigluF8::w),
                                                field("scale", &LinearSwigluF8::scale),
                                                field("z_scale", &LinearSwigluF8::z_scale),
                                                field("z_t", &LinearSwigluF8::z_t),
                                                field("z_amax", &LinearSwigluF8::z_amax),
                                                field("y_scale", &LinearSwigluF8::y_scale),
                                                field("y", &LinearSwigluF8::y),
                                                field("y_t", &LinearSwigluF8::y_t),
                                                field("y_amax", &LinearSwigluF8::y_amax)};

    static constexpr std::int64_t kTokenMultiple = 16;  // of M
    /// An amax is of one element, before it is rounded: its error is no RMS of many but up to four times that, and as
    /// y is a product, twice as much again.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (operand == "y_t") return kExact;  // beside y
        if (operand == "y" || operand == "z_t") return kStoredF8;
        const double sum = f8_product_tolerance(a.cols, false).largest;
        return operand == "z_amax" ? Tolerance{sum, sum} : Tolerance{2 * sum, 2 * sum};
    }
};

/// LinearSwigluBackward of FP8 operands, dy = scale a wᵀ, which writes dz for the two GEMMs that read it: by rows for
/// the dgrad, and transposed for the wgrad. An element is rounded once, from dz_scale dz, and its code written to both.
/// dz carries no factor rstd: x̂, which the wgrad reads, has been normalised.
///
///   dy = scale acc;  (g, u) = z_tᵀ / z_scale;  dg = dy u (σ + s (1 - σ));  du = dy s;  per row and tile Σ g dg + u du
///   dz = f8(dz_scale (dg, du)) interleaved;  dz_t = dzᵀ;  dz_amax = max(dz_amax, |dg|, |du|)
///
/// M is a multiple of 16, since z_t and dz_t keep their tokens in pairs of each 16 (ColumnOrder::paired). The scales
/// are powers of two. Values beyond the format's largest number take that number; dz_amax says whether there were any.
struct LinearSwigluBackwardF8 {
    In<Matrix> a;           // (M, K) f8e4m3
    In<Matrix> w;           // (f, K) f8e4m3: the transposed copy of the matrix
    In<Scalar> scale;       // statistic: undoes the scales of a and w
    In<Scalar> z_scale;     // statistic
    In<Matrix> z_t;         // (2f, M) f8e4m3, paired
    In<Scalar> dz_scale;    // statistic
    Out<Matrix> dz;         // (M, 2f) f8e4m3
    Out<Matrix> dz_t;       // (2f, M) f8e4m3, paired; may be z_t itself (a tile is loaded before it is stored)
    InOut<Scalar> dz_amax;  // statistic, at least 0
    Out<Partials> dot;      // (tiles over f, M) statistic, from dg, du before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearSwigluBackwardF8";
    static constexpr auto operands = std::tuple{field("a", &LinearSwigluBackwardF8::a),
                                                field("w", &LinearSwigluBackwardF8::w),
                                                field("scale", &LinearSwigluBackwardF8::scale),
                                                field("z_scale", &LinearSwigluBackwardF8::z_scale),
                                                field("z_t", &LinearSwigluBackwardF8::z_t),
                                                field("dz_scale", &LinearSwigluBackwardF8::dz_scale),
                                                field("dz", &LinearSwigluBackwardF8::dz),
                                                field("dz_t", &LinearSwigluBackwardF8::dz_t),
                                                field("dz_amax", &LinearSwigluBackwardF8::dz_amax),
                                                field("dot", &LinearSwigluBackwardF8::dot)};
    static constexpr auto in_place = std::tuple{&LinearSwigluBackwardF8::z_t, &LinearSwigluBackwardF8::dz_t};

    static constexpr std::int64_t kTileColumns = 128;   // columns per partial of dot
    static constexpr std::int64_t kTokenMultiple = 16;  // of M
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (operand == "dz_t") return kExact;  // beside dz
        if (operand == "dz") return kStoredF8;
        // dot and dz_amax are of dz before it is rounded, whose error is that of dy. dz_amax is one element: its error
        // is no RMS of many but up to four times that.
        const Tolerance sum = f8_product_tolerance(a.cols, false);
        return operand == "dz_amax" ? Tolerance{sum.largest, sum.largest} : sum;
    }
};

}  // namespace coda
