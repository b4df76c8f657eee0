// Zero, checked by its formula in op.h, one thread per element.
#include "kernels/ops/zero/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const Zero& op, OpCheck& check) {
    const std::byte* out = check.memory().address(op.out);
    const std::int64_t pitch = op.out.ld * size_of(op.out.dtype);
    compare(
        check, "out", op.out.rows, op.out.cols * size_of(op.out.dtype),
        [=] __device__(std::int64_t row, std::int64_t byte) { return static_cast<float>(out[row * pitch + byte]); },
        [=] __device__(std::int64_t, std::int64_t) { return 0.0f; });
}

}  // namespace coda::oracle
