// The finishing reductions, checked by their formulas in kernels/ops/forward.h and backward.h: a thread a sum, in
// double.
#include <cmath>

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

/// log Σ_tiles sum exp(max - m) + m over the pairs (max, sum) of a row, m the largest max.
struct LogSumExp {
    Tensor pairs;
    std::int64_t tiles;

    __device__ double operator[](std::int64_t row) const {
        double largest = -INFINITY, sum = 0;
        for (std::int64_t tile = 0; tile < tiles; ++tile)
            largest = fmax(largest, static_cast<double>(pairs(tile, 2 * row)));
        for (std::int64_t tile = 0; tile < tiles; ++tile)
            sum += static_cast<double>(pairs(tile, 2 * row + 1)) *
                   exp(static_cast<double>(pairs(tile, 2 * row)) - largest);
        return log(sum) + largest;
    }
};

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
    const Tensor old = accumulate ? overwritten(check, "grad", op.grad, 0) : Tensor{};
    compare(check, "grad", 1, op.grad.cols, live(check, op.grad), [=] __device__(std::int64_t, std::int64_t column) {
        return partials[column] + (accumulate ? static_cast<double>(old[column]) : 0.0);
    });
}

void check_op(const FinishCrossEntropy& op, OpCheck& check) {
    const LogSumExp lse{live(check, op.partials), op.partials.rows};
    const Tensor target_logit = live(check, op.target_logit);
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    compare(check, "lse", 1, op.lse.cols, live(check, op.lse),
            [=] __device__(std::int64_t, std::int64_t row) { return lse[row]; });
    compare(check, "loss", 1, op.loss.cols, live(check, op.loss), [=] __device__(std::int64_t, std::int64_t row) {
        return targets[row] < 0 ? 0.0 : lse[row] - static_cast<double>(target_logit[row]);
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
