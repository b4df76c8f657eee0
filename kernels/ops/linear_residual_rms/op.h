// A projection that closes a residual branch and opens the next norm. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// K4: x = acc + bias + residual; per row and tile Σ x². Closes a residual branch and opens the next norm. That norm's
/// 1/rms is one factor per row, so it commutes with the next GEMM and is applied there. That GEMM's matrix carries the
/// norm's weight.
///
/// With FP8 factors, f8e4m3 with K a multiple of 16, undo acc stands for acc, and there is no bias.
struct LinearResidualRms {
    In<Matrix> a;          // (M, K) storage or FP8
    Factor w;              // (N, K)
    In<Vector> bias;       // (1, N) master, optional (absent: 0)
    In<Matrix> residual;   // (M, N) storage
    Out<Matrix> x;         // (M, N) storage
    Out<Partials> square;  // (tiles over N, M) statistic, from x before rounding
    std::int64_t tile = 0;

    static constexpr Traits traits{Trait::result, Trait::tolerance, Trait::takes_f8, Trait::storage_only, Trait::w};
    static constexpr const char* name = "LinearResidualRms";
    static constexpr auto operands =
        fields(field("a", &LinearResidualRms::a), field("w", &LinearResidualRms::w),
               field("bias", &LinearResidualRms::bias), field("residual", &LinearResidualRms::residual),
               field("x", &LinearResidualRms::x), field("square", &LinearResidualRms::square));
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only = fields(field("bias", &LinearResidualRms::bias));

    /// Columns per partial of square: 192 where that divides N and 128 does not, as in models of width 576 and 960.
    /// With a bias the kernel of 192 columns has no registers left.
    static constexpr std::int64_t tile_columns(std::int64_t n, bool has_bias) {
        return !has_bias && n % 192 == 0 && n % 128 != 0 ? 192 : 128;
    }
    View result() const { return x; }
    /// Σ x² has twice the error of x.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (!is_f8(a.dtype)) return std::nullopt;
        if (operand == "x") return f8_product_tolerance(a.cols, true);
        const double twice = 2 * f8_product_error(a.cols, 0, SumOver::features);
        return Tolerance{twice, 4 * twice};
    }
};

}  // namespace coda
