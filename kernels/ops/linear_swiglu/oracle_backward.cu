// LinearSwigluBackward, checked by its formula in op.h, one thread per element; dz_t next to dz, byte by byte.
#include <algorithm>

#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op.h"
#include "kernels/oracle/f8_copies.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

void check_storage(const LinearSwigluBackward& op, OpCheck& check) {
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

void check_codes(const LinearSwigluBackward& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, width = op.tile;
    const Memory& memory = check.memory();
    const float undo = scalar_of(memory.address(op.w.undo)), dz_scale = scalar_of(memory.address(op.dz.codes.scale));
    const float z_inverse = 1 / scalar_of(memory.address(op.z_scale));
    double largest = 0;
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), dz = live(check, op.dz.codes.rows, first);
        const Untransposed z{before(check, "z_t", op.z), first};
        const auto gradient = [=] __device__(std::int64_t row, std::int64_t pair) {
            const float gate = z_inverse * z(row, 2 * pair), up = z_inverse * z(row, 2 * pair + 1);
            return swiglu_backward(gate, up, undo * acc(row, pair));
        };
        const auto exact = [=] __device__(std::int64_t row, std::int64_t column) {
            const auto both = gradient(row, column / 2);
            return column % 2 == 0 ? both.dgate : both.dup;
        };
        compare(check, "dz", rows, 2 * columns, dz, [=] __device__(std::int64_t row, std::int64_t column) {
            return finite(dz_scale * exact(row, column));
        });
        compare(check, "dz_t", rows, 2 * columns, Untransposed{live(check, op.dz.codes.columns), first}, dz);
        Tensor dot = live(check, op.dot);
        dot.data = static_cast<const float*>(dot.data) + first;
        compare(check, "dot", op.dot.rows, rows, dot, [=] __device__(std::int64_t tile, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, columns); ++j) sum += gradient(row, j).dot;
            return sum;
        });
        largest = std::max(largest, sums_over(check, rows, 2 * columns, exact, exact).largest_expected);
    });
    compare_amax(check, "dz_amax", op.dz.codes.amax, largest);
}

}  // namespace

template <>
void check_op(const LinearSwigluBackward& op, OpCheck& check) {
    is_f8(op.a.dtype) ? check_codes(op, check) : check_storage(op, check);
}

}  // namespace coda::oracle
