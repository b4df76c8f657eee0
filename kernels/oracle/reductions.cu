// The finishing reductions, checked by their formulas in kernels/ops/forward.h and backward.h: a thread a sum, in
// double.
#include <cmath>

#include "kernels/math/cross_entropy.h"
#include "kernels/math/rms.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

/// Σ_tiles partials[tile][column].
struct TileSum {
    Tensor partials;
    std::int64_t tiles;

    __device__ double operator[](std::int64_t column) const {
        double sum = 0;
        for (std::int64_t tile = 0; tile < tiles; ++tile) sum += static_cast<double>(partials(tile, column));
        return sum;
    }
};

TileSum tile_sum(const OpCheck& check, const View& partials) { return {live(check, partials), partials.rows}; }

}  // namespace

void check_op(const FinishRstd& op, OpCheck& check) {
    const TileSum square = tile_sum(check, op.square);
    const double width = static_cast<double>(op.width), eps = op.eps;
    compare(check, "rstd", 1, op.rstd.cols, live(check, op.rstd),
            [=] __device__(std::int64_t, std::int64_t row) { return 1 / sqrt(square[row] / width + eps); });
}

void check_op(const FinishRowSum& op, OpCheck& check) {
    const TileSum partials = tile_sum(check, op.partials);
    compare(check, "sum", 1, op.sum.cols, live(check, op.sum),
            [=] __device__(std::int64_t, std::int64_t row) { return partials[row]; });
}

void check_op(const FinishColumnSum& op, OpCheck& check) {
    const TileSum partials = tile_sum(check, op.partials);
    const bool accumulate = op.grad.beta == Beta::accumulate;
    const Tensor old = accumulate ? overwritten(check, "grad", op.grad, 0) : Tensor{}, gamma = live(check, op.gamma);
    const bool divides = static_cast<bool>(op.gamma);
    compare(check, "grad", 1, op.grad.cols, live(check, op.grad), [=] __device__(std::int64_t, std::int64_t column) {
        const double own = divides ? partials[column] / norm_factor<double>(gamma[column]) : partials[column];
        return own + (accumulate ? static_cast<double>(old[column]) : 0.0);
    });
}

void check_op(const FinishCrossEntropy& op, OpCheck& check) {
    const TileSum pairs = tile_sum(check, op.sums);  // columns 2 row and 2 row + 1: Σ e, Σ e d
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const std::int64_t rows = op.targets.cols;
    compare(check, "loss", 1, rows, live(check, op.loss), [=] __device__(std::int64_t, std::int64_t row) {
        return targets[row] < 0 ? 0.0 : cross_entropy::row_loss(pairs[2 * row], pairs[2 * row + 1]);
    });
    if (!op.exponentials) return;

    const Tensor scale = live(check, op.scale), target_logit = live(check, op.target_logit);
    compare_each(check, "scale", 1, rows, [=] __device__(std::int64_t, std::int64_t row) {
        const auto found = static_cast<double>(scale[row]);
        return targets[row] < 0 ? found : found * pairs[2 * row] - 1;
    });
    const Tensor old = overwritten(check, "exponentials", op.exponentials, 0), found = live(check, op.exponentials);
    compare(
        check, "exponentials", rows, op.exponentials.cols,
        [=] __device__(std::int64_t row, std::int64_t column) {
            return column == targets[row] ? 0.0f : found(row, column);
        },
        [=] __device__(std::int64_t row, std::int64_t column) {
            return column == targets[row] ? 0.0f : old(row, column);
        });
    compare(
        check, "target", 1, rows,
        [=] __device__(std::int64_t, std::int64_t row) {
            return targets[row] < 0 ? 0.0 : static_cast<double>(found(row, targets[row])) / pairs[2 * row];
        },
        [=] __device__(std::int64_t, std::int64_t row) {
            if (targets[row] < 0) return 0.0;
            const double sum = pairs[2 * row];
            return (static_cast<double>(old(row, targets[row])) - sum) / sum;
        });
    compare(check, "dot", 1, rows, live(check, op.dot), [=] __device__(std::int64_t, std::int64_t row) {
        if (targets[row] < 0) return 0.0;
        // Of the target's element as it is stored.
        const double sum = pairs[2 * row], rest = static_cast<double>(found(row, targets[row]));
        const double rounding = sum - static_cast<double>(old(row, targets[row])) + rest;
        return (pairs[2 * row + 1] + static_cast<double>(target_logit[row]) * rounding) / sum;
    });
}

void check_op(const ReduceLoss& op, OpCheck& check) {
    const Tensor loss = live(check, op.loss), alpha = live(check, op.alpha);
    const std::int64_t rows = op.loss.cols;
    const bool accumulate = op.total.beta == Beta::accumulate;
    const Tensor old = accumulate ? overwritten(check, "total", op.total, 0) : Tensor{};
    compare(check, "total", 1, 1, live(check, op.total), [=] __device__(std::int64_t, std::int64_t) {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row) sum += static_cast<double>(loss[row]);
        return static_cast<double>(alpha[0]) * sum + (accumulate ? static_cast<double>(old[0]) : 0.0);
    });
}

}  // namespace coda::oracle
