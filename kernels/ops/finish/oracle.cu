// FinishRstd, FinishRowSum and FinishColumnSums, checked by their formulas in op.h, one thread per element.
#include <cmath>

#include "kernels/math/rms.h"
#include "kernels/ops/finish/op.h"
#include "kernels/oracle/tile_sum.cuh"

namespace coda::oracle {

template <>
void check_op(const FinishRstd& op, OpCheck& check) {
    const TileSum square = tile_sum(check, op.square);
    const double width = static_cast<double>(op.width), eps = op.eps;
    compare(check, "rstd", 1, op.rstd.cols, live(check, op.rstd),
            [=] __device__(std::int64_t, std::int64_t row) { return 1 / sqrt(square[row] / width + eps); });
}

template <>
void check_op(const FinishRowSum& op, OpCheck& check) {
    const TileSum partials = tile_sum(check, op.partials);
    compare(check, "sum", 1, op.sum.cols, live(check, op.sum),
            [=] __device__(std::int64_t, std::int64_t row) { return partials[row]; });
}

template <>
void check_op(const FinishColumnSums& op, OpCheck& check) {
    for_each_sum(op, [&](const GradientSumNames& names, const GradientSum& each) {
        const TileSum partials = tile_sum(check, each.partials);
        const bool accumulate = each.grad.beta == Beta::accumulate, divides = static_cast<bool>(each.gamma);
        const Tensor old = accumulate ? overwritten(check, names.grad, each.grad, 0) : Tensor{};
        const Tensor gamma = live(check, each.gamma);
        compare(check, names.grad, 1, each.grad.cols, live(check, each.grad),
                [=] __device__(std::int64_t, std::int64_t column) {
                    const double own =
                        divides ? partials[column] / norm_factor<double>(gamma[column]) : partials[column];
                    return own + (accumulate ? static_cast<double>(old[column]) : 0.0);
                });
    });
}

}  // namespace coda::oracle
