// LinearSwiglu and LinearSwigluBackward, checked by their formulas in op.h, one thread per element.
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

template <>
void check_op(const LinearSwiglu& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const RowFactor factor = row_factor(op.rstd, check, first);
        if (op.z)
            compare(check, "z", rows, columns, live(check, op.z, first),
                    [=] __device__(std::int64_t row, std::int64_t column) { return acc(row, column) * factor[row]; });
        if (op.y)
            compare(check, "y", rows, columns / 2, live(check, op.y, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        const auto stored = [&](std::int64_t j) {
                            return __bfloat162float(__float2bfloat16(acc(row, j) * factor[row]));
                        };
                        return swiglu(stored(2 * column), stored(2 * column + 1));
                    });
    });
}

template <>
void check_op(const LinearSwigluBackward& op, OpCheck& check) {
    const std::int64_t columns = op.w.cols, width = op.tile;
    check.by_rows(op.a, Major::k, op.w, Major::mn, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const Tensor z = before(check, "z", op.z, first);
        const float* rstd = op.rstd ? check.memory().at<float>(op.rstd) + first : nullptr;
        const auto gradient = [=] __device__(std::int64_t row, std::int64_t pair) {
            const float dy = (rstd == nullptr ? 1.0f : rstd[row]) * acc(row, pair);
            return swiglu_backward(z(row, 2 * pair), z(row, 2 * pair + 1), dy);
        };
        compare(check, "dz", rows, 2 * columns, live(check, op.dz, first),
                [=] __device__(std::int64_t row, std::int64_t column) {
                    const auto both = gradient(row, column / 2);
                    return column % 2 == 0 ? both.dgate : both.dup;
                });
        if (op.y)
            compare(check, "y", rows, columns, live(check, op.y, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return swiglu(z(row, 2 * column), z(row, 2 * column + 1));
                    });
        Tensor dot = live(check, op.dot);
        dot.data = static_cast<const float*>(dot.data) + first;
        compare(check, "dot", op.dot.rows, rows, dot, [=] __device__(std::int64_t tile, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, columns); ++j) sum += gradient(row, j).dot;
            return sum;
        });
    });
}

}  // namespace coda::oracle
