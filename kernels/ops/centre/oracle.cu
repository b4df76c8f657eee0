// CentreColumns, checked by its formula in op.h, one thread per element, with means that one thread per column sums in
// double. Where a column's mean makes up most of it, what is left is far smaller than what it was, against which the
// error is then measured.
#include "kernels/ops/centre/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const CentreColumns& op, OpCheck& check) {
    const std::int64_t rows = op.matrix.rows, columns = op.matrix.cols;
    const Tensor matrix = before(check, "matrix", op.matrix);
    Pieces pieces(check.space());
    float* const means = pieces.floats(columns);
    for_each(check, 1, columns, [=] __device__(std::int64_t, std::int64_t column) {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row) sum += static_cast<double>(matrix(row, column));
        means[column] = static_cast<float>(sum / static_cast<double>(rows));
    });
    compare(check, "out", rows, columns, live(check, op.out), [=] __device__(std::int64_t row, std::int64_t column) {
        return static_cast<double>(matrix(row, column)) - means[column];
    });
    const Sums terms = sums_over(check, rows, columns, matrix, matrix);
    check.add_terms("out", terms.expected, terms.largest_expected);
}

}  // namespace coda::oracle
