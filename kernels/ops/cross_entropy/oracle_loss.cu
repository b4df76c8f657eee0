// FinishCrossEntropy and ReduceLoss, checked by their formulas in op.h, one thread per element.
#include <cmath>

#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/op.h"
#include "kernels/oracle/tile_sum.cuh"

namespace coda::oracle {

template <>
void check_op(const FinishCrossEntropy& op, OpCheck& check) {
    const TileSum pairs = tile_sum(check, op.sums);  // columns 2 row and 2 row + 1: Σ e, Σ e d
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const std::int64_t rows = op.targets.cols;
    const Tensor target_logit = live(check, op.target_logit);
    const bool flags_rows = static_cast<bool>(op.flags);
    const auto flagged = [=] __device__(std::int64_t row) {
        return flags_rows && targets[row] >= 0 &&
               cross_entropy::needs_exact(pairs[2 * row], pairs[2 * row + 1], static_cast<double>(target_logit[row]));
    };
    const auto left_out = [=] __device__(std::int64_t row) { return targets[row] < 0 || flagged(row); };
    if (flags_rows) {
        const std::int32_t* flags = check.memory().at<std::int32_t>(op.flags);
        compare(
            check, "flags", 1, rows,
            [=] __device__(std::int64_t, std::int64_t row) { return static_cast<double>(flags[row]); },
            [=] __device__(std::int64_t, std::int64_t row) { return flagged(row) ? 1.0 : 0.0; });
    }
    compare(check, "loss", 1, rows, live(check, op.loss), [=] __device__(std::int64_t, std::int64_t row) {
        return left_out(row) ? 0.0 : cross_entropy::row_loss(pairs[2 * row], pairs[2 * row + 1]);
    });
    if (!op.exponentials) return;

    const Tensor scale = live(check, op.scale);
    compare_each(check, "scale", 1, rows, [=] __device__(std::int64_t, std::int64_t row) {
        const auto found = static_cast<double>(scale[row]);
        return left_out(row) ? found : found * pairs[2 * row] - 1;
    });
    const Tensor old = overwritten(check, "exponentials", op.exponentials, 0), found = live(check, op.exponentials);
    compare(
        check, "exponentials", rows, op.exponentials.cols,
        [=] __device__(std::int64_t row, std::int64_t column) {
            return column == targets[row] && !flagged(row) ? 0.0f : found(row, column);
        },
        [=] __device__(std::int64_t row, std::int64_t column) {
            return column == targets[row] && !flagged(row) ? 0.0f : old(row, column);
        });
    compare(
        check, "target", 1, rows,
        [=] __device__(std::int64_t, std::int64_t row) {
            return left_out(row) ? 0.0 : static_cast<double>(found(row, targets[row])) / pairs[2 * row];
        },
        [=] __device__(std::int64_t, std::int64_t row) {
            if (left_out(row)) return 0.0;
            const double sum = pairs[2 * row];
            return (static_cast<double>(old(row, targets[row])) - sum) / sum;
        });
    compare(check, "dot", 1, rows, live(check, op.dot), [=] __device__(std::int64_t, std::int64_t row) {
        if (left_out(row)) return 0.0;
        // From the target's element as stored.
        const double sum = pairs[2 * row], rest = static_cast<double>(found(row, targets[row]));
        const double rounding = sum - static_cast<double>(old(row, targets[row])) + rest;
        return (pairs[2 * row + 1] + static_cast<double>(target_logit[row]) * rounding) / sum;
    });
}

template <>
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
