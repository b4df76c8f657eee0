// LinearSwigluF8 and LinearSwigluBackwardF8, checked by their formulas in op_f8.h, one thread per element; y_t beside y
// and dz_t beside dz, byte by byte.
#include <algorithm>

#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op_f8.h"
#include "kernels/oracle/f8_copies.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

__device__ float finite(float value) { return fminf(fmaxf(value, -448.0f), 448.0f); }

}  // namespace

template <>
void check_op(const LinearSwigluF8& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows;
    const Memory& memory = check.memory();
    const float scale = scalar_of(memory.address(op.scale)), y_scale = scalar_of(memory.address(op.y_scale));
    double largest = 0;
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), live_y = live(check, op.y, first);
        if (op.z)
            compare(check, "z", rows, columns, live(check, op.z, first),
                    [=] __device__(std::int64_t row, std::int64_t column) { return scale * acc(row, column); });
        const auto y = [=] __device__(std::int64_t row, std::int64_t column) {
            const auto stored = [&](std::int64_t j) { return __bfloat162float(__float2bfloat16(scale * acc(row, j))); };
            return swiglu(stored(2 * column), stored(2 * column + 1));
        };
        compare(check, "y", rows, columns / 2, live_y,
                [=] __device__(std::int64_t row, std::int64_t column) { return finite(y_scale * y(row, column)); });
        if (op.y_t) compare(check, "y_t", rows, columns / 2, Untransposed{live(check, op.y_t), first}, live_y);
        largest = std::max(largest, sums_over(check, rows, columns / 2, y, y).largest_expected);
    });
    compare_amax(check, "y_amax", op.y_amax, largest);
}

template <>
void check_op(const LinearSwigluBackwardF8& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, width = op.tile;
    const Memory& memory = check.memory();
    const float scale = scalar_of(memory.address(op.scale)), dz_scale = scalar_of(memory.address(op.dz_scale));
    const float y_scale = op.y_t ? scalar_of(memory.address(op.y_scale)) : 1.0f;
    double largest = 0;
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), z = live(check, op.z, first), dz = live(check, op.dz, first);
        const auto gradient = [=] __device__(std::int64_t row, std::int64_t pair) {
            return swiglu_backward(z(row, 2 * pair), z(row, 2 * pair + 1), scale * acc(row, pair));
        };
        const auto exact = [=] __device__(std::int64_t row, std::int64_t column) {
            const auto both = gradient(row, column / 2);
            return column % 2 == 0 ? both.dgate : both.dup;
        };
        compare(check, "dz", rows, 2 * columns, dz, [=] __device__(std::int64_t row, std::int64_t column) {
            return finite(dz_scale * exact(row, column));
        });
        compare(check, "dz_t", rows, 2 * columns, Untransposed{live(check, op.dz_t), first}, dz);
        if (op.y_t)
            compare(check, "y_t", rows, columns, Untransposed{live(check, op.y_t), first},
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return finite(y_scale * swiglu(z(row, 2 * column), z(row, 2 * column + 1)));
                    });
        Tensor dot = live(check, op.dot);
        dot.data = static_cast<const float*>(dot.data) + first;
        compare(check, "dot", op.dot.rows, rows, dot, [=] __device__(std::int64_t tile, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, columns); ++j) sum += gradient(row, j).dot;
            return sum;
        });
        largest = std::max(largest, sums_over(check, rows, 2 * columns, exact, exact).largest_expected);
    });
    compare_amax(check, "dz_amax", op.dz_amax, largest);
}

}  // namespace coda::oracle
