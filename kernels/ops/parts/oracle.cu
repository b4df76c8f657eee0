// ReduceParts, checked by its formula in op.h, one thread per element.
#include "kernels/ops/parts/op.h"
#include "kernels/oracle/tile_sum.cuh"

namespace coda::oracle {

template <>
void check_op(const ReduceParts& op, OpCheck& check) {
    const Tensor parts = live(check, op.parts);
    const std::int64_t rows = op.parts.rows, own = op.unread();
    const Tensor old = own >= 0 ? overwritten(check, "out", op.out, 0) : Tensor{};
    const bool sum = op.how == ReduceParts::How::sum;
    compare(check, "out", 1, op.out.cols, live(check, op.out), [=] __device__(std::int64_t, std::int64_t i) {
        const auto part_of = [=](std::int64_t row) -> float { return row == own ? old[i] : parts(row, i); };
        float value = part_of(0);
        for (std::int64_t row = 1; row < rows; ++row) {
            const float part = part_of(row);
            value = sum ? value + part : part > value || isnan(part) ? part : value;
        }
        return value;
    });
}

}  // namespace coda::oracle
