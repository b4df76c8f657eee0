// CrossEntropyBackward and RopeBackward, which turn a matrix into its gradient in place, checked by
// their formulas in kernels/ops/backward.h: a thread an element, and a thread a row for the row statistic, in double.
#include <cmath>

#include "kernels/math/rope.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

void check_op(const CrossEntropyBackward& op, OpCheck& check) {
    const Tensor logits = overwritten(check, "logits", op.logits, 0), lse = live(check, op.lse);
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const std::int64_t vocab = op.vocab;
    // p - 1 at the target is expm1: where the model is sure, p is 1 but for its last bits.
    const auto gradient = [=] __device__(std::int64_t row, std::int64_t column) {
        if (targets[row] < 0 || column >= vocab) return 0.0;
        const double exponent = static_cast<double>(logits(row, column)) - static_cast<double>(lse[row]);
        return column == targets[row] ? expm1(exponent) : exp(exponent);
    };
    const Tensor found = live(check, op.logits);
    compare(
        check, "logits", op.logits.rows, op.logits.cols,
        [=] __device__(std::int64_t row, std::int64_t column) {
            return column == targets[row] ? 0.0f : found(row, column);
        },
        [=] __device__(std::int64_t row, std::int64_t column) {
            return column == targets[row] ? 0.0 : gradient(row, column);
        });
    compare(
        check, "target", 1, op.logits.rows,
        [=] __device__(std::int64_t, std::int64_t row) { return targets[row] < 0 ? 0.0f : found(row, targets[row]); },
        [=] __device__(std::int64_t, std::int64_t row) {
            return targets[row] < 0 ? 0.0 : gradient(row, targets[row]);
        });
    compare(check, "dot", 1, op.dot.cols, live(check, op.dot), [=] __device__(std::int64_t, std::int64_t row) {
        double sum = 0;
        if (targets[row] < 0) return sum;
        for (std::int64_t column = 0; column < vocab; ++column)
            sum += static_cast<double>(logits(row, column)) * static_cast<double>(found(row, column));
        return sum;
    });
}

void check_op(const RopeBackward& op, OpCheck& check) {
    const Tensor qkv = live(check, op.qkv), dqkv = overwritten(check, "dqkv", op.dqkv, 0), rope = live(check, op.rope);
    const std::int32_t* positions = check.memory().at<std::int32_t>(op.positions);
    const std::int64_t columns = op.qkv.cols, rotated = op.rotated, head_dim = op.head_dim;
    compare(check, "dqkv", op.dqkv.rows, columns, live(check, op.dqkv),
            [=] __device__(std::int64_t row, std::int64_t column) {
                if (column >= rotated) return dqkv(row, column);
                const std::int64_t even = column / 2 * 2, angle = even % head_dim;
                const Pair<float> turned = unrotate_pair(Pair<float>{dqkv(row, even), dqkv(row, even + 1)},
                                                         rope(positions[row], angle), rope(positions[row], angle + 1));
                return column == even ? turned.first : turned.second;
            });
    compare(check, "dot", 1, op.dot.cols, live(check, op.dot), [=] __device__(std::int64_t, std::int64_t row) {
        double sum = 0;
        for (std::int64_t column = 0; column < columns; ++column)
            sum += static_cast<double>(qkv(row, column)) * static_cast<double>(dqkv(row, column));
        return sum;
    });
}

}  // namespace coda::oracle
