// A projection that closes a residual branch and opens the next norm. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// K4: x = acc + residual; per row and tile Σ x². Closes a residual branch and opens the next norm. That norm's 1/rms
/// is one factor per row, so it commutes with the next GEMM and is applied there. That GEMM's matrix carries the norm's
/// weight.
struct LinearResidualRms {
    In<Matrix> a;          // (M, K) storage
    In<Matrix> w;          // (N, K) storage
    In<Matrix> residual;   // (M, N) storage
    Out<Matrix> x;         // (M, N) storage
    Out<Partials> square;  // (tiles over N, M) statistic, from x before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearResidualRms";
    static constexpr auto operands =
        std::tuple{field("a", &LinearResidualRms::a), field("w", &LinearResidualRms::w),
                   field("residual", &LinearResidualRms::residual), field("x", &LinearResidualRms::x),
                   field("square", &LinearResidualRms::square)};

    static constexpr std::int64_t kTileColumns = 128;  // columns per partial of square
    View result() const { return x; }
};

}  // namespace coda
