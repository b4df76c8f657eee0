// CentreRows, checked by its formula in op.h, one thread per element.
#include "kernels/ops/centre_rows/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const CentreRows& op, OpCheck& check) {
    const std::int64_t rows = op.dx.rows, columns = op.dx.cols;
    const Tensor old = overwritten(check, "dx", op.dx, 0);
    compare(check, "dx", rows, columns, live(check, op.dx), [=] __device__(std::int64_t row, std::int64_t column) {
        double sum = 0;
        for (std::int64_t j = 0; j < columns; ++j) sum += static_cast<double>(old(row, j));
        return static_cast<double>(old(row, column)) - sum / static_cast<double>(columns);
    });
}

}  // namespace coda::oracle
