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
        const Tensor gain = live(check, op.gain);
        const bool adds = static_cast<bool>(op.bias), norms = static_cast<bool>(op.gain);
        const RowFactor factor = row_factor(op.rstd, check, first);
        const ScalarFactor undo = scalar_factor(op.w.undo, check);
        const std::int32_t* positions = check.memory().at<std::int32_t>(op.positions) + first;
        const std::int64_t rotated = op.rotated, head_dim = op.head_dim, queries = op.queries;
        const double eps = op.eps;
        const auto rho_of = [=] __device__(std::int64_t row, std::int64_t head) {
            double squares = 0;
            for (std::int64_t j = head * head_dim; j < (head + 1) * head_dim; ++j) {
                const double z = static_cast<double>(acc(row, j)) * undo * factor[row];
                squares += z * z;
            }
            return static_cast<float>(1 / sqrt(squares / static_cast<double>(head_dim) + eps));
        };
        if (op.pre)
            compare(check, "pre", rows, rotated, live(check, op.pre, first),
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return acc(row, column) * (undo * factor[row]);
                    });
        if (op.rho) {
            Tensor rho = live(check, op.rho);
            rho.data = static_cast<const float*>(rho.data) + first;
            compare(check, "rho", op.rho.rows, rows, rho,
                    [=] __device__(std::int64_t head, std::int64_t row) { return rho_of(row, head); });
        }
        compare(check, "out", rows, op.out.cols, live(check, op.out, first),
                [=] __device__(std::int64_t row, std::int64_t column) {
                    const std::int64_t even = column / 2 * 2, angle = even % head_dim;
                    const float by = undo * factor[row];
                    Pair<float> pair{acc(row, even) * by + (adds ? bias[even] : 0.0f),
                                     acc(row, even + 1) * by + (adds ? bias[even + 1] : 0.0f)};
                    if (norms && column < rotated) {
                        const float rho = rho_of(row, column / head_dim);
                        const std::int64_t of = column < queries ? 0 : 1, in_head = even % head_dim;
                        pair = {gain(of, in_head) * rho * pair.first, gain(of, in_head + 1) * rho * pair.second};
                    }
                    if (column >= rotated) return column == even ? pair.first : pair.second;
                    const Pair<float> turned =
                        rotate_pair(pair, rope(positions[row], angle), rope(positions[row], angle + 1));
                    return column == even ? turned.first : turned.second;
                });
    });
}

}  // namespace coda::oracle
