// LinearSwiglu, checked by its formula in op.h, one thread per element; y_t next to y, byte by byte.
#include <algorithm>

#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op.h"
#include "kernels/oracle/f8_copies.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

void check_storage(const LinearSwiglu& op, OpCheck& check) {
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

void check_codes(const LinearSwiglu& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows;
    const Memory& memory = check.memory();
    const float undo = scalar_of(memory.address(op.w.undo)), z_scale = scalar_of(memory.address(op.z.codes.scale)),
                y_scale = scalar_of(memory.address(op.y.codes.scale));
    double largest_z = 0, largest_y = 0;
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), live_y = live(check, op.y.codes.rows, first);
        const auto z = [=] __device__(std::int64_t row, std::int64_t column) { return undo * acc(row, column); };
        compare(check, "z_t", rows, columns, Untransposed{live(check, op.z.codes.columns), first},
                [=] __device__(std::int64_t row, std::int64_t column) { return finite(z_scale * z(row, column)); });
        const auto y = [=] __device__(std::int64_t row, std::int64_t column) {
            return swiglu(z(row, 2 * column), z(row, 2 * column + 1));
        };
        compare(check, "y", rows, columns / 2, live_y,
                [=] __device__(std::int64_t row, std::int64_t column) { return finite(y_scale * y(row, column)); });
        compare(check, "y_t", rows, columns / 2, Untransposed{live(check, op.y.codes.columns), first}, live_y);
        largest_z = std::max(largest_z, sums_over(check, rows, columns, z, z).largest_expected);
        largest_y = std::max(largest_y, sums_over(check, rows, columns / 2, y, y).largest_expected);
    });
    compare_amax(check, "z_amax", op.z.codes.amax, largest_z);
    compare_amax(check, "y_amax", op.y.codes.amax, largest_y);
}

}  // namespace

template <>
void check_op(const LinearSwiglu& op, OpCheck& check) {
    is_f8(op.a.dtype) ? check_codes(op, check) : check_storage(op, check);
}

}  // namespace coda::oracle
