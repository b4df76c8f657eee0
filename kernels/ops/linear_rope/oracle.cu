// LinearRope, checked by its formula in op.h, one thread per element.
#include "kernels/math/rope.h"
#include "kernels/ops/linear_rope/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

template <>
void check_op(const LinearRope& op, OpCheck& check) {
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, op.out.cols), rope = live(check, op.rope), bias = live(check, op.bias);
        const bool adds = static_cast<bool>(op.bias);
        const RowFactor factor = row_factor(op.rstd, check, first);
        const ScalarFactor undo = scalar_factor(op.w.undo, check);
        const std::int32_t* positions = check.memory().at<std::int32_t>(op.positions) + first;
        const std::int64_t rotated = op.rotated, head_dim = op.head_dim;
        compare(check, "out", rows, op.out.cols, live(check, op.out, first),
                [=] __device__(std::int64_t row, std::int64_t column) {
                    const std::int64_t even = column / 2 * 2, angle = even % head_dim;
                    const float by = undo * factor[row];
                    const Pair<float> pair{acc(row, even) * by + (adds ? bias[even] : 0.0f),
                                           acc(row, even + 1) * by + (adds ? bias[even + 1] : 0.0f)};
                    if (column >= rotated) return column == even ? pair.first : pair.second;
                    const Pair<float> turned =
                        rotate_pair(pair, rope(positions[row], angle), rope(positions[row], angle + 1));
                    return column == even ? turned.first : turned.second;
                });
    });
}

}  // namespace coda::oracle
