// ReduceParts, checked by its formula in op.h, one thread per element.
#include "kernels/ops/parts/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const ReduceParts& op, OpCheck& check) {
    const Tensor parts = live(check, op.parts);
    const std::int64_t rows = op.parts.rows;
    const bool sum = op.how == ReduceParts::How::sum;
    compare(check, "out", 1, op.out.cols, live(check, op.out), [=] __device__(std::int64_t, std::int64_t i) {
        float value = parts(0, i);
        for (std::int64_t row = 1; row < rows; ++row) {
            const float part = parts(row, i);
            value = sum ? value + part : part > value || isnan(part) ? part : value;
        }
        return value;
    });
}

}  // namespace coda::oracle
