// RoundWeights, checked by its formula in op.h, one thread per element.
#include "kernels/math/rms.h"
#include "kernels/ops/round_weights/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const RoundWeights& op, OpCheck& check) {
    const Tensor master = live(check, op.master);
    const Tensor gamma = op.gamma ? live(check, op.gamma) : Tensor{};
    const bool folds = static_cast<bool>(op.gamma);
    compare(check, "working", op.working.rows, op.working.cols, live(check, op.working),
            [=] __device__(std::int64_t row, std::int64_t column) {
                const float factor = folds ? norm_factor(gamma[column]) : 1.0f;
                return __bfloat162float(__float2bfloat16(master(row, column) * factor));
            });
}

}  // namespace coda::oracle
