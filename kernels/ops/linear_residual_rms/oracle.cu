// LinearResidualRms, checked by its formula in op.h, one thread per element.
#include "kernels/ops/linear_residual_rms/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

template <>
void check_op(const LinearResidualRms& op, OpCheck& check) {
    const std::int64_t columns = op.x.cols, width = op.tile;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const ScalarFactor undo = scalar_factor(op.w.undo, check);
        const float* bias = check.memory().at<float>(op.bias);
        const Tensor residual = before(check, "residual", op.residual, first);
        const auto x = [=] __device__(std::int64_t row, std::int64_t column) {
            return undo * acc(row, column) + (bias == nullptr ? 0.0f : bias[column]) + residual(row, column);
        };
        compare(check, "x", rows, columns, live(check, op.x, first), x);
        Tensor square = live(check, op.square);
        square.data = static_cast<const float*>(square.data) + first;
        compare(check, "square", op.square.rows, rows, square, [=] __device__(std::int64_t tile, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, columns); ++j) {
                const float value = x(row, j);
                sum += value * value;
            }
            return sum;
        });
    });
}

}  // namespace coda::oracle
