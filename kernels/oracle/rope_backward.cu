// RopeBackward, checked by its formula in kernels/ops/backward.h: a thread an element, and a thread a row for the row
// statistic, in double.
#include "kernels/math/rope.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

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
