// Embed and EmbedBackward, checked by their formulas in op.h, one thread per element.
#include <cmath>

#include "kernels/ops/embedding/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const Embed& op, OpCheck& check) {
    const std::int32_t* tokens = check.memory().at<std::int32_t>(op.tokens);
    const Tensor table = live(check, op.table), x = live(check, op.x);
    const std::int32_t* positions = check.memory().at<std::int32_t>(op.positions);
    const Tensor position_table = live(check, op.position_table);
    const std::int64_t columns = op.table.cols;
    const double eps = op.eps;
    const bool rounds = op.x.dtype == DType::bf16;
    const bool centred = op.centred;
    const auto stored = [=] __device__(float value) {
        return rounds ? __bfloat162float(__float2bfloat16(value)) : value;
    };
    const auto sum = [=] __device__(std::int64_t row, std::int64_t column) {
        const float token = stored(table(tokens[row], column));
        return positions == nullptr ? token : token + position_table(positions[row], column);
    };
    compare(check, "x", op.x.rows, columns, x, [=] __device__(std::int64_t row, std::int64_t column) {
        double mean = 0;
        for (std::int64_t j = 0; centred && j < columns; ++j) mean += static_cast<double>(sum(row, j));
        return stored(sum(row, column) - static_cast<float>(mean / static_cast<double>(columns)));
    });
    compare(check, "rstd", 1, op.rstd.cols, live(check, op.rstd), [=] __device__(std::int64_t, std::int64_t row) {
        double square = 0;
        for (std::int64_t column = 0; column < columns; ++column) {
            const double value = static_cast<double>(x(row, column));
            square += value * value;
        }
        return 1 / sqrt(square / static_cast<double>(columns) + eps);
    });
}

/// Works in bands of columns. One thread per column adds a band's rows one after the other, so nothing is sorted.
template <>
void check_op(const EmbedBackward& op, OpCheck& check) {
    const std::int32_t* tokens = check.memory().at<std::int32_t>(op.tokens);
    const std::int64_t rows = op.tokens.cols, table_rows = op.grad.rows;
    const Tensor old = overwritten(check, "grad", op.grad, 0), dx = live(check, op.dx), grad = live(check, op.grad);
    for (const auto [begin, width] : bands(op.grad.cols, table_rows * size_of(DType::f32), 1, check.space().bytes())) {
        const std::int64_t first = begin, columns = width;
        float* sums = Pieces(check.space()).floats(table_rows * columns);
        for_each(check, table_rows, columns, [=] __device__(std::int64_t row, std::int64_t column) {
            sums[row * columns + column] = old(row, first + column);
        });
        for_each(check, 1, columns, [=] __device__(std::int64_t, std::int64_t column) {
            for (std::int64_t row = 0; row < rows; ++row)
                sums[tokens[row] * columns + column] += dx(row, first + column);
        });
        compare(
            check, "grad", table_rows, columns,
            [=] __device__(std::int64_t row, std::int64_t column) { return grad(row, first + column); },
            band_of(sums, columns));
    }
}

}  // namespace coda::oracle
