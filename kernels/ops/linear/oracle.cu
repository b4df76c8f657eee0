// Linear, checked by its formula in op.h, one thread per element.
#include "kernels/ops/linear/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

template <>
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

}  // namespace coda::oracle
