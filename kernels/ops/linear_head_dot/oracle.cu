// LinearHeadDot, checked by its formula in op.h, one thread per element.
#include "kernels/ops/linear_head_dot/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

template <>
void check_op(const LinearHeadDot& op, OpCheck& check) {
    const std::int64_t columns = op.out.cols, head_dim = op.head_dim;
    check.by_rows(op.a, Major::k, op.w, Major::mn, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns), o = live(check, op.o, first);
        const ScalarFactor undo = scalar_factor(op.w.undo, check);
        const auto exact = [=] __device__(std::int64_t row, std::int64_t column) { return undo * acc(row, column); };
        compare(check, "out", rows, columns, live(check, op.out, first), exact);
        Tensor delta = live(check, op.delta);
        delta.data = static_cast<const float*>(delta.data) + first;
        compare(check, "delta", op.delta.rows, rows, delta, [=] __device__(std::int64_t head, std::int64_t row) {
            float sum = 0;
            for (std::int64_t j = head * head_dim; j < (head + 1) * head_dim; ++j)
                sum += o(row, j) * __bfloat162float(__float2bfloat16(exact(row, j)));
            return sum;
        });
    });
}

}  // namespace coda::oracle
