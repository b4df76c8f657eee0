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
    const float scale = scalar_of(memory.address(op.scale)), z_scale = scalar_of(memory.address(op.z_scale)),
                y_scale = scalar_of(memory.address(op.y_scale));
    double largest_z = 0, largest_y = 0;
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), live_y = live(check, op.y, first);
        const auto z = [=] __device__(std::int64_t row, std::int64_t column) { return scale * acc(row, column); };
        compare(check, "z_t", rows, columns, Untransposed{live(check, op.z_t), first},
                [=] __device__(std::int64_t row, std::int64_t column) { return finite(z_scale * z(row, column)); });
        const auto y = [=] __device__(std::int64_t row, std::int64_t column) {
            return swiglu(z(row, 2 * column), z(row, 2 * column + 1));
        };
        compare(check, "y", rows, columns / 2, live_y,
                [=] __device__(std::int64_t row, std::int64_t column) { return finite(y_scale * y(row, column)); });
        compare(check, "y_t", rows, columns / 2, Untransposed{live(check, op.y_t), first}, live_y);
        largest_z = std::max(largest_z, sums_over(check, rows, columns, z, z).largest_expected);
        largest_y = std::max(largest_y, sums_over(check, rows, columns / 2, y, y).largest_expected);
    });
    compare_amax(check, "z_amax", op.z_amax, largest_z);
    compare_amax(check, "y_amax", op.y_amax, largest_y);
}

template <>
void check_op(const LinearSwigluBackwardF8& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, width = op.tile;
    const Memory& memory = check.memory();
    const float scale = scalar_of(memory.address(op.scale)), dz_scale = scalar_of(memory.address(op.dz_scale));
    const float z_inverse = 1 / scalar_of(memory.address(op.z_scale));
    double largest = 0;
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), dz = live(check, op.dz, first);
        const Untransposed z{before(check, "z_t", op.z_t), first};
        const auto gradient = [=] __device__(std::int64_t row, std::int64_t pair) {
            const float gate = z_inverse * z(row, 2 * pair), up = z_inverse * z(row, 2 * pair + 1);
            return swiglu_backward(gate, up, scale * acc(row, pair));
        };
        const auto exact = [=] __device__(std::int64_t row, std::int64_t column) {
            const auto both = gradient(row, column / 2);
            return column % 2 == 0 ? both.dgate : both.dup;
        };
        compare(check, "dz", rows, 2 * columns, dz, [=] __device__(std::int64_t row, std::int64_t column) {
            return finite(dz_scale * exact(row, column));
        });
        compare(check, "dz_t", rows, 2 * columns, Untransposed{live(check, op.dz_t), first}, dz);
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
