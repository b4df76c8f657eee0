// The forward GEMM ops and TargetLogit, checked by their formulas in kernels/ops/forward.h, one thread an element.
#include <cmath>
#include <numbers>

#include "kernels/math/cross_entropy.h"
#include "kernels/math/rope.h"
#include "kernels/math/swiglu.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

using hopper::Major;

/// Row factor of an op, 1 where it has none.
struct RowFactor {
    const float* rstd = nullptr;
    __device__ float operator[](std::int64_t row) const { return rstd == nullptr ? 1.0f : rstd[row]; }
};
RowFactor row_factor(const View& rstd, const OpCheck& check, std::int64_t first) {
    return {rstd ? check.memory().at<float>(rstd) + first : nullptr};
}

}  // namespace

void check_op(const LinearRope& op, OpCheck& check) {
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, op.out.cols), rope = live(check, op.rope);
        const RowFactor factor = row_factor(op.rstd, check, first);
        const std::int32_t* positions = check.memory().at<std::int32_t>(op.positions) + first;
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

namespace {

/// The exponential of a logit that is `distance` above its row's target.
__device__ double exponential(double distance) {
    return exp2(fmin(distance * std::numbers::log2e, static_cast<double>(cross_entropy::kLimit)) -
                cross_entropy::kShift);
}
__device__ double stored(double value) {
    return static_cast<double>(__bfloat162float(__float2bfloat16_rn(static_cast<float>(value))));
}

/// Exponentials below 2^-126 may be 0: small ones are measured against 2^8 times as much, and so are small sums of 128
/// of them, times distances of up to 2^6.
constexpr double kSmallExponential = 0x1p-118, kSmallSum = 0x1p-104;

/// Of one tile: Σ e and Σ e d, and the sizes that they are measured against.
struct TileSums {
    double value[2] = {0, 0};
    double size[2] = {0, 0};
};

}  // namespace

void check_op(const LinearCrossEntropy& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, vocab = op.vocab, width = op.tile, tiles = op.sums.rows;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const RowFactor factor = row_factor(op.rstd, check, first);
        const float* target_logit = check.memory().at<float>(op.target_logit) + first;
        const auto distance = [=] __device__(std::int64_t row, std::int64_t column) {
            return static_cast<double>(acc(row, column)) * static_cast<double>(factor[row]) -
                   static_cast<double>(target_logit[row]);
        };
        if (op.exponentials) {
            const Tensor found = live(check, op.exponentials, first);
            compare_each(check, "exponentials", rows, columns, [=] __device__(std::int64_t row, std::int64_t column) {
                const double expected = column < vocab ? exponential(distance(row, column)) : 0.0;
                return (static_cast<double>(found(row, column)) - expected) / fmax(expected, kSmallExponential);
            });
        }
        Tensor pairs = live(check, op.sums);
        pairs.data = static_cast<const float*>(pairs.data) + 2 * first;
        compare_each(check, "sums", tiles, 2 * rows, [=] __device__(std::int64_t tile, std::int64_t i) {
            TileSums sums;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, vocab); ++j) {
                // The sums are of exponentials as they are stored.
                const double d = distance(i / 2, j), e = stored(exponential(d));
                sums.value[0] += e;
                sums.value[1] += e * d;
                sums.size[0] += e;
                sums.size[1] += e * (1 + fabs(d));
            }
            return (static_cast<double>(pairs(tile, i)) - sums.value[i % 2]) / fmax(sums.size[i % 2], kSmallSum);
        });
    });
}

void check_op(const TargetLogit& op, OpCheck& check) {
    const Tensor a = live(check, op.a), table = live(check, op.table), rstd = live(check, op.rstd);
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const std::int64_t width = op.a.cols;
    compare(check, "target_logit", 1, op.a.rows, live(check, op.target_logit),
            [=] __device__(std::int64_t, std::int64_t row) {
                double sum = 0;
                if (targets[row] < 0) return sum;
                for (std::int64_t k = 0; k < width; ++k)
                    sum += static_cast<double>(a(row, k)) * static_cast<double>(table(targets[row], k));
                return rstd.data == nullptr ? sum : sum * static_cast<double>(rstd[row]);
            });
}

void check_op(const Linear& op, OpCheck& check) {
    const Major major = op.layout == WeightLayout::out_in ? Major::k : Major::mn;
    check.by_rows(op.a, Major::k, op.w, major, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, op.out.cols), out = live(check, op.out, first);
        const RowFactor factor = row_factor(op.rstd, check, first);
        const bool accumulate = op.out.beta == Beta::accumulate;
        const Tensor old = accumulate ? overwritten(check, "out", op.out, first) : Tensor{};
        compare(check, "out", rows, op.out.cols, out, [=] __device__(std::int64_t row, std::int64_t column) {
            return acc(row, column) * factor[row] + (accumulate ? old(row, column) : 0.0f);
        });
    });
}

void check_op(const LinearResidualRms& op, OpCheck& check) {
    const std::int64_t columns = op.x.cols, width = op.tile;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const Tensor residual = before(check, "residual", op.residual, first);
        compare(
            check, "x", rows, columns, live(check, op.x, first),
            [=] __device__(std::int64_t row, std::int64_t column) { return acc(row, column) + residual(row, column); });
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
