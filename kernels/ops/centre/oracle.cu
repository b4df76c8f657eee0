// CentreColumns, checked by its formula in op.h, one thread per element, with means that one thread per column sums in
// double. Where a column's mean makes up most of it, what is left is far smaller than what it was, against which the
// error is then measured.
#include "kernels/ops/centre/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

void compare_centred(OpCheck& check, const char* name, const char* out_name, const View& from, const View& to) {
    const std::int64_t rows = from.rows, columns = from.cols;
    const Tensor given = before(check, name, from);
    Pieces pieces(check.space());
    float* const means = pieces.floats(columns);
    for_each(check, 1, columns, [=] __device__(std::int64_t, std::int64_t column) {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row) sum += static_cast<double>(given(row, column));
        means[column] = static_cast<float>(sum / static_cast<double>(rows));
    });
    compare(check, out_name, rows, columns, live(check, to), [=] __device__(std::int64_t row, std::int64_t column) {
        return static_cast<double>(given(row, column)) - means[column];
    });
    const Sums terms = sums_over(check, rows, columns, given, given);
    check.add_terms(out_name, terms.expected, terms.largest_expected);
}

/// A bias (1, N) as a matrix of one column.
View column_of(View vector) {
    vector.rows = vector.cols;
    vector.cols = vector.ld = 1;
    return vector;
}

}  // namespace

template <>
void check_op(const CentreColumns& op, OpCheck& check) {
    compare_centred(check, "matrix", "out", op.matrix, op.out);
    if (op.bias) compare_centred(check, "bias", "bias_out", column_of(op.bias), column_of(op.bias_out));
}

}  // namespace coda::oracle
