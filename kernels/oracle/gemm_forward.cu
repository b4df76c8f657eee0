// The forward GEMM ops, checked by their formulas in kernels/ops/forward.h, one thread an element.
#include <cmath>

#include "kernels/math/rope.h"
#include "kernels/math/swiglu.h"
#include "kernels/oracle/comparison.cuh"
#include "kernels/tiling.h"

namespace coda::oracle {

namespace {

using hopper::Major;

/// Row factor of an op, 1 where it has none.
struct RowFactor {
    const float* rstd = nullptr;
    __device__ float operator[](std::int64_t row) const { return rstd == nullptr ? 1.0f : rstd[row]; }
};
template <class Op>
RowFactor row_factor(const Op& op, const OpCheck& check, std::int64_t first) {
    if constexpr (requires { op.rstd; }) return {check.memory().template at<float>(op.rstd) + first};
    return {};
}

template <class Op>
void check_rope(const Op& op, OpCheck& check) {
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, op.out.cols), rope = live(check, op.rope);
        const RowFactor factor = row_factor(op, check, first);
        const std::int32_t* positions = check.memory().template at<std::int32_t>(op.positions) + first;
        const std::int64_t rotated = op.rotated, head_dim = op.head_dim;
        compare(check, "out", rows, op.out.cols, live(check, op.out, first),
                [=] __device__(std::int64_t row, std::int64_t column) {
                    const std::int64_t even = column / 2 * 2, angle = even % head_dim;
                    const Pair<float> pair{acc(row, even) * factor[row], acc(row, even + 1) * factor[row]};
                    if (column >= rotated) return column == even ? pair.first : pair.second;
                    const Pair<float> turned =
                        rotate_pair(pair, rope(positions[row], angle), rope(positions[row], angle + 1));
                    return column == even ? turned.first : turned.second;
                });
    });
}

template <class Op>
void check_swiglu(const Op& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const RowFactor factor = row_factor(op, check, first);
        if (op.z)
            compare(check, "z", rows, columns, live(check, op.z, first),
                    [=] __device__(std::int64_t row, std::int64_t column) { return acc(row, column) * factor[row]; });
        if (op.y)
            compare(check, "y", rows, columns / 2, live(check, op.y, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return swiglu(acc(row, 2 * column) * factor[row], acc(row, 2 * column + 1) * factor[row]);
                    });
    });
}

template <class Op>
void check_cross_entropy(const Op& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, vocab = op.vocab, width = op.tile, tiles = op.lse.rows;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const RowFactor factor = row_factor(op, check, first);
        if (op.logits)
            compare(check, "logits", rows, columns, live(check, op.logits, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return column < vocab ? acc(row, column) * factor[row] : 0.0f;
                    });
        // A tile beyond the vocabulary has the sum 0 on both sides and counts as 0.
        Tensor pairs = live(check, op.lse);
        pairs.data = static_cast<const float*>(pairs.data) + 2 * first;
        compare(
            check, "lse", tiles, rows,
            [=] __device__(std::int64_t tile, std::int64_t row) {
                const float maximum = pairs(tile, 2 * row), sum = pairs(tile, 2 * row + 1);
                return sum == 0 ? 0.0f : maximum + logf(sum);
            },
            [=] __device__(std::int64_t tile, std::int64_t row) {
                const std::int64_t begin = tile * width, end = min(begin + width, vocab);
                if (begin >= end) return 0.0f;
                // The sum is over logits as they are stored.
                const auto logit = [&](std::int64_t j) {
                    return __bfloat162float(__float2bfloat16_rn(acc(row, j) * factor[row]));
                };
                float maximum = logit(begin);
                for (std::int64_t j = begin + 1; j < end; ++j) maximum = fmaxf(maximum, logit(j));
                float sum = 0;
                for (std::int64_t j = begin; j < end; ++j) sum += expf(logit(j) - maximum);
                return maximum + logf(sum);
            });
        const std::int32_t* targets = check.memory().template at<std::int32_t>(op.targets) + first;
        const float* target_logit = check.memory().template at<float>(op.target_logit) + first;
        compare(
            check, "target_logit", 1, rows,
            [=] __device__(std::int64_t, std::int64_t row) { return targets[row] < 0 ? 0.0f : target_logit[row]; },
            [=] __device__(std::int64_t, std::int64_t row) {
                return targets[row] < 0 ? 0.0f : acc(row, targets[row]) * factor[row];
            });
    });
}

}  // namespace

void check_op(const LinearRope& op, OpCheck& check) { check_rope(op, check); }
void check_op(const LinearRstdRope& op, OpCheck& check) { check_rope(op, check); }
void check_op(const LinearSwiglu& op, OpCheck& check) { check_swiglu(op, check); }
void check_op(const LinearRstdSwiglu& op, OpCheck& check) { check_swiglu(op, check); }
void check_op(const LinearCrossEntropy& op, OpCheck& check) { check_cross_entropy(op, check); }
void check_op(const LinearRstdCrossEntropy& op, OpCheck& check) { check_cross_entropy(op, check); }

void check_op(const Linear& op, OpCheck& check) {
    const Major major = op.layout == WeightLayout::out_in ? Major::k : Major::mn;
    check.by_rows(op.a, Major::k, op.w, major, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, op.out.cols), out = live(check, op.out, first);
        if (op.out.beta == Beta::overwrite) {
            compare(check, "out", rows, op.out.cols, out, acc);
            return;
        }
        const Tensor old = overwritten(check, "out", op.out, first);
        compare(check, "out", rows, op.out.cols, out,
                [=] __device__(std::int64_t row, std::int64_t column) { return acc(row, column) + old(row, column); });
    });
}

void check_op(const LinearRstd& op, OpCheck& check) {
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, op.out.cols);
        const RowFactor factor = row_factor(op, check, first);
        compare(check, "out", rows, op.out.cols, live(check, op.out, first),
                [=] __device__(std::int64_t row, std::int64_t column) { return acc(row, column) * factor[row]; });
    });
}

void check_op(const LinearResidualRms& op, OpCheck& check) {
    const std::int64_t columns = op.x.cols, width = op.tile;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), gamma = live(check, op.gamma);
        const Tensor residual = before(check, "residual", op.residual, first);
        compare(
            check, "x", rows, columns, live(check, op.x, first),
            [=] __device__(std::int64_t row, std::int64_t column) { return acc(row, column) + residual(row, column); });
        compare(check, "h", rows, columns, live(check, op.h, first),
                [=] __device__(std::int64_t row, std::int64_t column) {
                    return (acc(row, column) + residual(row, column)) * gamma[column];
                });
        Tensor square = live(check, op.square);
        square.data = static_cast<const float*>(square.data) + first;
        compare(check, "square", op.square.rows, rows, square, [=] __device__(std::int64_t tile, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, columns); ++j) {
                const float value = acc(row, j) + residual(row, j);
                sum += value * value;
            }
            return sum;
        });
    });
}

}  // namespace coda::oracle
