// BiasBackward, checked by its formula in op.h, one thread per element. Where the bias makes up most of z, what is left
// of dot is far smaller than what it was, against which its error is then measured.
#include "kernels/ops/bias_backward/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const BiasBackward& op, OpCheck& check) {
    const std::int64_t rows = op.dz.rows, columns = op.dz.cols, height = op.tile;
    const Tensor dz = live(check, op.dz), bias = live(check, op.bias), old = overwritten(check, "dot", op.dot, 0);
    const RowFactor rstd = row_factor(op.rstd, check, 0);
    compare(check, "dot", 1, rows, live(check, op.dot), [=] __device__(std::int64_t, std::int64_t row) {
        double sum = 0;
        for (std::int64_t j = 0; j < columns; ++j) sum += static_cast<double>(bias[j]) * dz(row, j);
        return old[row] - sum;
    });
    const Sums terms = sums_over(check, 1, rows, old, old);
    check.add_terms("dot", terms.expected, terms.largest_expected);
    compare(check, "sum", op.sum.rows, columns, live(check, op.sum),
            [=] __device__(std::int64_t tile, std::int64_t column) {
                double sum = 0;
                for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                    sum += static_cast<double>(dz(row, column)) / rstd[row];
                return sum;
            });
}

}  // namespace coda::oracle
