// QuantiseF8, checked by its formula in op.h, one thread per element.
#include "kernels/ops/quantise/op.h"
#include "kernels/oracle/f8_copies.cuh"

namespace coda::oracle {

template <>
void check_op(const QuantiseF8& op, OpCheck& check) {
    const Tensor x = live(check, op.x);
    const RowFactor rstd = row_factor(op.rstd, check, 0);
    compare_rounding(check, op.names, op.codes, op.format(), op.x.rows, op.x.cols,
                     [=] __device__(std::int64_t row, std::int64_t column) { return x(row, column) * rstd[row]; });
}

}  // namespace coda::oracle
