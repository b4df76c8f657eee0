// The backward GEMM ops, checked by their formulas in kernels/ops/backward.h, one thread an element.
#include <cmath>

#include "kernels/math/rms.h"
#include "kernels/math/swiglu.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

void check_op(const LinearRmsBackward& op, OpCheck& check) {
    const std::int64_t columns = op.dx.cols, height = op.tile;
    check.by_rows(
        op.a, Major::k, op.w, Major::mn, op.tile, [&](const float* product, std::int64_t first, std::int64_t rows) {
            const Tensor acc = band_of(product, columns);
            const Tensor x = before(check, "x", op.x, first);
            const float* rstd = check.memory().at<float>(op.rstd) + first;
            const float* dot = check.memory().at<float>(op.dot) + first;
            const float* factor = check.memory().at<float>(op.alpha);
            const float* scales = op.scale ? check.memory().at<float>(op.scale) + first : nullptr;
            const auto scale = [=] __device__(std::int64_t row) { return scales == nullptr ? 1.0f : scales[row]; };
            const auto factors = [=] __device__(std::int64_t row) {
                const float alpha = factor == nullptr ? 1.0f : *factor, mean = dot[row] / static_cast<float>(columns);
                return scales == nullptr ? rms_backward_row(alpha, rstd[row], mean)
                                         : rms_backward_row(alpha, rstd[row], mean, scales[row]);
            };
            const bool accumulate = op.dx.beta == Beta::accumulate;
            const Tensor old = accumulate ? overwritten(check, "dx", op.dx, first) : Tensor{};
            compare(check, "dx", rows, columns, live(check, op.dx, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        const auto row_of = factors(row);
                        return row_of.of_acc * acc(row, column) - row_of.of_x * x(row, column) +
                               (accumulate ? old(row, column) : 0.0f);
                    });
            if (op.n) {
                // Before the scale, which differs by powers of two from row to row; 0 where that is 0.
                const Tensor n = live(check, op.n, first);
                compare(
                    check, "n", rows, columns,
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return scale(row) == 0 ? n(row, column) : n(row, column) / scale(row);
                    },
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return scale(row) == 0 ? 0.0f : rstd[row] * x(row, column);
                    });
            }
            Tensor dgamma = live(check, op.dgamma, first / height);
            compare(check, "dgamma", (rows + height - 1) / height, columns, dgamma,
                    [=] __device__(std::int64_t tile, std::int64_t column) {
                        float sum = 0;
                        for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                            sum += factors(row).of_acc * acc(row, column) * x(row, column);
                        return sum;
                    });
        });
}

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

void check_op(const LinearHeadDot& op, OpCheck& check) {
    const std::int64_t columns = op.out.cols, head_dim = op.head_dim;
    check.by_rows(op.a, Major::k, op.w, Major::mn, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), o = live(check, op.o, first);
        compare(check, "out", rows, columns, live(check, op.out, first), acc);
        Tensor delta = live(check, op.delta);
        delta.data = static_cast<const float*>(delta.data) + first;
        compare(check, "delta", op.delta.rows, rows, delta, [=] __device__(std::int64_t head, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = head * head_dim; j < (head + 1) * head_dim; ++j)
                sum += o(row, j) * __bfloat162float(__float2bfloat16(acc(row, j)));
            return sum;
        });
    });
}

void check_op(const WeightGradient& op, OpCheck& check) {
    const std::int64_t columns = op.grad.cols;
    // Bands begin at multiples of 8: a band of dy's columns must stay aligned to 16 bytes.
    check.by_rows(op.dy, Major::mn, op.x, Major::mn, 8,
                  [&](const float* product, std::int64_t first, std::int64_t rows) {
                      const Tensor acc = band_of(product, columns);
                      const float* scale = check.memory().at<float>(op.alpha);
                      const float* gamma = check.memory().at<float>(op.gamma);
                      const bool accumulate = op.grad.beta == Beta::accumulate;
                      const Tensor old = accumulate ? overwritten(check, "grad", op.grad, first) : Tensor{};
                      compare(check, "grad", rows, columns, live(check, op.grad, first),
                              [=] __device__(std::int64_t row, std::int64_t column) {
                                  const float alpha = scale == nullptr ? 1.0f : *scale;
                                  const float weight = gamma == nullptr ? 1.0f : gamma[column];
                                  return alpha * acc(row, column) * weight + (accumulate ? old(row, column) : 0.0f);
                              });
                  });
}

}  // namespace coda::oracle
