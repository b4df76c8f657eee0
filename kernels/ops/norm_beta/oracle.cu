// FoldBeta and BetaBackward, checked by their formulas in op.h, one thread per element.
#include "kernels/math/rms.h"
#include "kernels/ops/norm_beta/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const FoldBeta& op, OpCheck& check) {
    const std::int64_t width = op.working.cols;
    const Tensor working = live(check, op.working), gamma = live(check, op.gamma), beta = live(check, op.beta),
                 bias = live(check, op.bias);
    const bool has_bias = static_cast<bool>(op.bias);
    compare(check, "v", 1, op.v.cols, live(check, op.v), [=] __device__(std::int64_t, std::int64_t row) {
        double sum = has_bias ? static_cast<double>(bias[row]) : 0.0;
        for (std::int64_t j = 0; j < width; ++j)
            sum += static_cast<double>(working(row, j)) * beta[j] / norm_factor<double>(gamma[j]);
        return sum;
    });
}

template <>
void check_op(const BetaBackward& op, OpCheck& check) {
    const std::int64_t rows = op.working.rows, width = op.working.cols, height = op.tile;
    const Tensor db = live(check, op.db), working = live(check, op.working), beta = live(check, op.beta),
                 old = overwritten(check, "grad", op.grad, 0);
    compare(check, "grad", rows, width, live(check, op.grad), [=] __device__(std::int64_t row, std::int64_t column) {
        return old(row, column) + static_cast<double>(db[row]) * beta[column];
    });
    compare(check, "dbeta", op.dbeta.rows, width, live(check, op.dbeta),
            [=] __device__(std::int64_t tile, std::int64_t column) {
                double sum = 0;
                for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                    sum += static_cast<double>(db[row]) * working(row, column);
                return sum;
            });
}

}  // namespace coda::oracle
