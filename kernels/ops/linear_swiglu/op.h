// The gate and up projections with SwiGLU, and the dgrad of the down projection with SwiGLU's gradient. Notation:
// kernels/ops.h.
#pragma once

#include <array>
#include <utility>

#include "kernels/core/op.h"

namespace coda {

/// K2, with rstd K6: w has gate and up rows interleaved, so columns 2i, 2i+1 of z = acc rstd are (g, u), and
/// y = silu(g) u. y is computed from g and u rounded as in z, whether z is kept or not: recomputed from z, y has the
/// same bits. z is stored with the factor rstd, as the backward statistic Σ z dz needs it.
///
/// With FP8 factors z = undo acc: a has been normalised, so rstd is absent. y is computed from g and u in fp32 and
/// rounded for the two GEMMs that read it: by rows for the down projection, and transposed for its wgrad. z is rounded
/// for the backward pass, transposed, as LinearSwigluBackward writes dz in its place. M is a multiple of 16, since
/// transposed codes keep their tokens in pairs of each 16 (ColumnOrder::paired).
struct LinearSwiglu {
    In<Matrix> a;     // (M, K) storage or f8e4m3
    Factor w;         // (2f, K), gate and up rows interleaved
    In<Vector> rstd;  // (1, M) statistic, optional (absent: 1)
    Result z;         // (M, 2f), optional in storage; codes transposed only
    Result y;         // (M, f), optional in storage; codes in both layouts

    static constexpr Traits traits{Trait::result,       Trait::tolerance,    Trait::takes_f8,
                                   Trait::storage_only, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "LinearSwiglu";
    static constexpr RoundedNames z_names{"z_scale", "z", "z_t", "z_amax"}, y_names{"y_scale", "y", "y_t", "y_amax"};
    static constexpr auto operands =
        fields(field("a", &LinearSwiglu::a), field("w", &LinearSwiglu::w), field("rstd", &LinearSwiglu::rstd),
               field(z_names, &LinearSwiglu::z), field(y_names, &LinearSwiglu::y));
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only = fields(field("rstd", &LinearSwiglu::rstd));

    View result() const { return z; }
    TensorScalars scalars_of_a() const { return {.times = rstd}; }
    /// y in storage is computed from gate and up rounded to bf16. Where the two accumulators lie on either side of a
    /// tie, gate or up differs by 2^-7 of itself, and y by 1.1 times that, plus its own rounding.
    ///
    /// An amax is of one element, before it is rounded: its error is no RMS of many but up to four times that, and as
    /// y is a product, twice as much again.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (!is_f8(a.dtype)) return operand == "y" ? std::optional(Tolerance{4e-3, 1.3e-2}) : std::nullopt;
        if (operand == "y_t") return kExact;  // next to y
        if (operand == "y" || operand == "z_t") return kStoredF8;
        const double sum = f8_product_tolerance(a.cols, false).largest;
        return operand == "z_amax" ? Tolerance{sum, sum} : Tolerance{2 * sum, 2 * sum};
    }
};

/// K10, dy = rstd a w with w (K, f) and (g, u) the column pairs of z; σ = sigmoid(g), s = g σ:
///   dg = dy u (σ + s (1 - σ));  du = dy s;  dz = (dg, du) interleaved;  y = s u;  per row and tile Σ g dg + u du.
/// rstd belongs to the norm before the GEMM that computed z: LinearRmsBackward and WeightGradient expect this factor in
/// dz. y has the bits that LinearSwiglu computed; absent where LinearSwiglu's y was kept.
///
/// With FP8 factors dy = undo a wᵀ with w (f, K), the transposed copy, and z = LinearSwiglu's codes / z_scale. dz
/// carries no rstd, as x̂, which the wgrad reads, has been normalised. dz is rounded for the two GEMMs that read it: by
/// rows for the dgrad, and transposed for the wgrad. M is a multiple of 16, as in LinearSwiglu.
struct LinearSwigluBackward {
    In<Matrix> a;        // (M, K) storage or f8e4m3
    Factor w;            // (K, f) storage, or f8e4m3 (f, K)
    In<Matrix> z;        // (M, 2f) storage, or f8e4m3 (2f, M), paired
    In<Scalar> z_scale;  // statistic; of codes
    In<Vector> rstd;     // (1, M) statistic, optional (absent: 1)
    Result dz;           // (M, 2f), or codes in both layouts; that or the transposed codes may be z itself (a tile is
                         // loaded before it is stored)
    Out<Matrix> y;       // (M, f) storage, optional
    Out<Partials> dot;   // (tiles over f, M) statistic, from dg, du before rounding
    std::int64_t tile = 0;

    static constexpr Traits traits{Trait::layout,   Trait::result,       Trait::tolerance,  Trait::in_place,
                                   Trait::takes_f8, Trait::storage_only, Trait::codes_only, Trait::w};
    static constexpr const char* name = "LinearSwigluBackward";
    static constexpr RoundedNames dz_names{"dz_scale", "dz", "dz_t", "dz_amax"};
    static constexpr auto operands =
        fields(field("a", &LinearSwigluBackward::a), field("w", &LinearSwigluBackward::w),
               field("z_scale", &LinearSwigluBackward::z_scale), field("z", &LinearSwigluBackward::z, "z_t"),
               field("rstd", &LinearSwigluBackward::rstd), field(dz_names, &LinearSwigluBackward::dz),
               field("y", &LinearSwigluBackward::y), field("dot", &LinearSwigluBackward::dot));
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only =
        fields(field("rstd", &LinearSwigluBackward::rstd), field("y", &LinearSwigluBackward::y));
    static constexpr auto codes_only = fields(field("z_scale", &LinearSwigluBackward::z_scale));
    auto in_place() const {
        return std::array{std::pair<View, View>{z, dz}, std::pair<View, View>{z, dz.codes.columns}};
    }

    static constexpr WeightLayout layout = WeightLayout::in_out;
    static constexpr std::int64_t kTileColumns = 128;  // columns per partial of dot
    /// The first half of dz, as y may be absent.
    View result() const {
        View half = dz;
        half.cols = half.ld = dz.cols / 2;
        return half;
    }
    /// With FP8 factors, dot and dz_amax are computed from dz before it is rounded, and it has the error of dy. dz_amax
    /// is one element: its error is not an RMS of many, but up to four times the RMS.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (!is_f8(a.dtype)) return std::nullopt;
        if (operand == "dz_t") return kExact;  // next to dz
        if (operand == "dz") return kStoredF8;
        const Tolerance sum = f8_product_tolerance(a.cols, false);
        return operand == "dz_amax" ? Tolerance{sum.largest, sum.largest} : sum;
    }
};

}  // namespace coda
