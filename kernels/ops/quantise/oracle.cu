// QuantiseF8, checked by its formula in op.h, one thread per element.
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/ops/quantise/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const QuantiseF8& op, OpCheck& check) {
    const Tensor x = live(check, op.x), scale = live(check, op.codes.scale);
    const RowFactor rstd = row_factor(op.rstd, check, 0);
    const auto value = [=] __device__(std::int64_t row, std::int64_t column) { return x(row, column) * rstd[row]; };
    const bool wide = op.format() == DType::f8e5m2;
    const auto code = [=] __device__(std::int64_t row, std::int64_t column) {
        const float scaled = scale[0] * value(row, column);
        return wide ? static_cast<float>(F8E5M2(scaled)) : static_cast<float>(F8E4M3(scaled));
    };
    if (op.codes.rows) compare(check, "rows", op.x.rows, op.x.cols, live(check, op.codes.rows), code);
    if (op.codes.columns) {
        const Tensor columns = live(check, op.codes.columns);
        const bool paired = op.codes.columns.order == ColumnOrder::paired;
        const auto transposed = [=] __device__(std::int64_t row, std::int64_t column) {
            return columns(column, paired ? paired_place(row) : row);
        };
        compare(check, "columns", op.x.rows, op.x.cols, transposed, code);
    }
    if (!op.codes.amax) return;
    const double largest = sums_over(check, op.x.rows, op.x.cols, value, value).largest_expected;
    const Tensor old = overwritten(check, "amax", op.codes.amax, 0);
    compare(check, "amax", 1, 1, live(check, op.codes.amax),
            [=] __device__(std::int64_t, std::int64_t) { return fmax(static_cast<double>(old[0]), largest); });
}

}  // namespace coda::oracle
