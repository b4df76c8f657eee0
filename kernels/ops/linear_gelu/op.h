// The up projection of an MLP without a gate, with GELU, and the dgrad of its down projection with GELU's gradient.
// Notation: kernels/ops.h.
#pragma once

#include <array>
#include <utility>

#include "kernels/core/op.h"
#include "kernels/math/gelu.h"

namespace coda {

/// z = acc rstd + bias, y = gelu(z), both of `kind` (kernels/math/gelu.h). y is computed from z as stored, whether z is
/// kept or not: made again from z, y has the same bits.
struct LinearGelu {
    In<Matrix> a;     // (M, K) storage
    In<Matrix> w;     // (f, K) storage
    In<Vector> rstd;  // (1, M) statistic, optional (absent: 1)
    In<Vector> bias;  // (1, f) master, optional (absent: 0)
    Out<Matrix> z;    // (M, f) storage, optional
    Out<Matrix> y;    // (M, f) storage, optional
    Gelu kind = Gelu::tanh;

    static constexpr Traits traits{Trait::result, Trait::tolerance, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "LinearGelu";
    static constexpr auto operands =
        fields(field("a", &LinearGelu::a), field("w", &LinearGelu::w), field("rstd", &LinearGelu::rstd),
               field("bias", &LinearGelu::bias), field("z", &LinearGelu::z), field("y", &LinearGelu::y));

    View result() const { return z; }
    TensorScalars scalars_of_a() const { return {.times = rstd}; }
    /// y is computed from z rounded to bf16. Where the two accumulators lie on either side of a tie, z differs by 2^-7
    /// of itself, and y by 1.2 times that, plus its own rounding.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        return operand == "y" ? std::optional(Tolerance{4e-3, 1.3e-2}) : std::nullopt;
    }
};

/// The backward pass, dy = a w with w (K, f):
///   d = dy gelu'(z);  dz = rstd d;  y = gelu(z)
///   per row and tile of columns Σ (z - bias) dz;  per column and tile of rows Σ d.
/// rstd belongs to the norm before the GEMM that computed z: LinearRmsBackward and WeightGradient expect this factor in
/// dz. The norm's statistic pairs dz with what x̂ made of z, hence z - bias; it takes dz before rounding. Σ d is the
/// gradient of the bias, which has no factor (FinishColumnSums). y has the bits that LinearGelu computed.
struct LinearGeluBackward {
    In<Matrix> a;         // (M, K) storage
    In<Matrix> w;         // (K, f) storage
    In<Matrix> z;         // (M, f) storage
    In<Vector> rstd;      // (1, M) statistic, optional (absent: 1)
    In<Vector> bias;      // (1, f) master, optional (absent: 0): what LinearGelu added
    Out<Matrix> dz;       // (M, f) storage; may be z itself (a tile is loaded before it is stored)
    Out<Matrix> y;        // (M, f) storage, optional: absent where LinearGelu's y was kept
    Out<Partials> dot;    // (tiles over f, M) statistic
    Out<Partials> dbias;  // (tiles over M, f) statistic, from d before rounding
    std::int64_t tile = 0, row_tile = 0;
    Gelu kind = Gelu::tanh;

    static constexpr Traits traits{Trait::layout, Trait::result, Trait::in_place, Trait::w};
    static constexpr const char* name = "LinearGeluBackward";
    static constexpr auto operands = fields(
        field("a", &LinearGeluBackward::a), field("w", &LinearGeluBackward::w), field("z", &LinearGeluBackward::z),
        field("rstd", &LinearGeluBackward::rstd), field("bias", &LinearGeluBackward::bias),
        field("dz", &LinearGeluBackward::dz), field("y", &LinearGeluBackward::y),
        field("dot", &LinearGeluBackward::dot), field("dbias", &LinearGeluBackward::dbias));
    auto in_place() const { return std::array{std::pair<View, View>{z, dz}}; }

    static constexpr WeightLayout layout = WeightLayout::in_out;
    static constexpr std::int64_t kTileColumns = 128;  // columns per partial of dot
    static constexpr std::int64_t kTileRows = 64;      // rows per partial of dbias
    View result() const { return dz; }
};

}  // namespace coda
