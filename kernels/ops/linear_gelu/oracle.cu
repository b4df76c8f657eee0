// LinearGelu and LinearGeluBackward, checked by their formulas in op.h, one thread per element.
#include "kernels/ops/linear_gelu/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

/// A bias by columns; 0 where it is absent.
struct Bias {
    const float* value;
    __device__ float operator[](std::int64_t column) const { return value == nullptr ? 0.0f : value[column]; }
};

}  // namespace

template <>
void check_op(const LinearGelu& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows;
    const Bias bias{check.memory().at<float>(op.bias)};
    const Gelu kind = op.kind;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const RowFactor rstd = row_factor(op.rstd, check, first);
        const auto z = [=] __device__(std::int64_t row, std::int64_t column) {
            return acc(row, column) * rstd[row] + bias[column];
        };
        if (op.z) compare(check, "z", rows, columns, live(check, op.z, first), z);
        if (op.y)
            compare(check, "y", rows, columns, live(check, op.y, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return gelu(kind, __bfloat162float(__float2bfloat16(z(row, column)))).y;
                    });
    });
}

template <>
void check_op(const LinearGeluBackward& op, OpCheck& check) {
    const std::int64_t columns = op.w.cols, width = op.tile, height = op.row_tile;
    const Bias bias{check.memory().at<float>(op.bias)};
    const Gelu kind = op.kind;
    check.by_rows(
        op.a, Major::k, op.w, Major::mn, height, [&](const float* product, std::int64_t first, std::int64_t rows) {
            const Tensor acc = band_of(product, columns);
            const Tensor z = before(check, "z", op.z, first);
            const RowFactor rstd = row_factor(op.rstd, check, first);
            const auto gradient = [=] __device__(std::int64_t row, std::int64_t column) {
                return acc(row, column) * gelu(kind, z(row, column)).slope;
            };
            compare(
                check, "dz", rows, columns, live(check, op.dz, first),
                [=] __device__(std::int64_t row, std::int64_t column) { return rstd[row] * gradient(row, column); });
            if (op.y)
                compare(check, "y", rows, columns, live(check, op.y, first),
                        [=] __device__(std::int64_t row, std::int64_t column) { return gelu(kind, z(row, column)).y; });
            Tensor dot = live(check, op.dot);
            dot.data = static_cast<const float*>(dot.data) + first;
            compare(check, "dot", op.dot.rows, rows, dot, [=] __device__(std::int64_t tile, std::int64_t row) {
                float sum = 0;
                for (std::int64_t j = tile * width; j < min((tile + 1) * width, columns); ++j)
                    sum += (z(row, j) - bias[j]) * (rstd[row] * gradient(row, j));
                return sum;
            });
            compare(check, "dbias", ceil_div(rows, height), columns, live(check, op.dbias, first / height),
                    [=] __device__(std::int64_t tile, std::int64_t column) {
                        float sum = 0;
                        for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                            sum += gradient(row, column);
                        return sum;
                    });
        });
}

}  // namespace coda::oracle
