// WeightGradient, checked by its formula in op.h, one thread per element.
#include "kernels/core/factors.h"
#include "kernels/ops/weight_gradient/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

template <>
void check_op(const WeightGradient& op, OpCheck& check) {
    const std::int64_t columns = op.grad.cols;
    // Bands begin at multiples of 8: a band of dy's columns must stay aligned to 16 bytes.
    const Major major = has_codes(op) ? Major::k : Major::mn;
    check.by_rows(op.dy, major, op.x, major, 8, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const float* scale = check.memory().at<float>(has_codes(op) ? op.x.undo : op.alpha);
        const float* gamma = check.memory().at<float>(op.gamma);
        const bool accumulate = op.grad.beta == Beta::accumulate;
        const Tensor old = accumulate ? overwritten(check, "grad", op.grad, first) : Tensor{};
        compare(check, "grad", rows, columns, live(check, op.grad, first),
                [=] __device__(std::int64_t row, std::int64_t column) {
                    const float alpha = scale == nullptr ? 1.0f : *scale;
                    const float weight = gamma == nullptr ? 1.0f : gamma[column];
                    return alpha * acc(row, column) * weight + (accumulate ? old(row, column) : 0.0f);
                });
    });
}

}  // namespace coda::oracle
