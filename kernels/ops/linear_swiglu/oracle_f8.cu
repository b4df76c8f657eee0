// LinearSwigluBackwardF8, checked by its formula in op_f8.h, one thread per element; dz_t beside dz, byte by byte.
#include <algorithm>

#include "kernels/core/float8.h"
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op_f8.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

float scalar_of(const void* device) {
    float value = 0;
    CUDA_CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

}  // namespace

template <>
void check_op(const LinearSwigluBackwardF8& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, width = op.tile;
    const Memory& memory = check.memory();
    const float scale = scalar_of(memory.address(op.scale)), dz_scale = scalar_of(memory.address(op.dz_scale));
    const float y_scale = op.y_t ? scalar_of(memory.address(op.y_scale)) : 1.0f;
    const Tensor dz_t = live(check, op.dz_t), y_t = live(check, op.y_t);
    double largest = scalar_of(check.captured("dz_amax"));
    check.by_rows(op.a, Major::k, op.w, Major::k, 16, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), z = live(check, op.z, first), dz = live(check, op.dz, first);
        const auto gradient = [=] __device__(std::int64_t row, std::int64_t pair) {
            return swiglu_backward(z(row, 2 * pair), z(row, 2 * pair + 1), scale * acc(row, pair));
        };
        const auto exact = [=] __device__(std::int64_t row, std::int64_t column) {
            const auto both = gradient(row, column / 2);
            return column % 2 == 0 ? both.dgate : both.dup;
        };
        const auto finite = [] __device__(float value) { return fminf(fmaxf(value, -448.0f), 448.0f); };
        compare(check, "dz", rows, 2 * columns, dz, [=] __device__(std::int64_t row, std::int64_t column) {
            return finite(dz_scale * exact(row, column));
        });
        const auto transposed = [=] __device__(const Tensor& copy, std::int64_t row, std::int64_t column) {
            return copy(column, paired_place(first + row));
        };
        compare(
            check, "dz_t", rows, 2 * columns,
            [=] __device__(std::int64_t row, std::int64_t column) { return transposed(dz_t, row, column); }, dz);
        if (op.y_t)
            compare(
                check, "y_t", rows, columns,
                [=] __device__(std::int64_t row, std::int64_t column) { return transposed(y_t, row, column); },
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
    const double difference = scalar_of(memory.address(op.dz_amax)) - largest;
    check.add("dz_amax", {difference * difference, largest * largest, std::abs(difference), largest});
}

}  // namespace coda::oracle
