#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/rms.h"
#include "kernels/ops/round_weights/op.h"

namespace coda::cpu {

template <>
void execute(const RoundWeights& op, const Memory& memory) {
    dispatch_storage(op.name, op.working.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const std::int64_t number = op.working.rows, width = op.working.cols;
        const auto master = rows_of<const Compute>(operands, "master", op.master, number, width);
        const auto working = rows_of<Storage>(operands, "working", op.working, number, width);
        const auto* gamma = operands.get_optional<Compute>("gamma", op.gamma, 1, width);
#pragma omp parallel for
        for (std::int64_t row = 0; row < number; ++row)
            for (std::int64_t column = 0; column < width; ++column) {
                const Compute factor = gamma ? norm_factor(gamma[column]) : Compute(1);
                working[row][column] = Storage(master[row][column] * factor);
            }
    });
}

}  // namespace coda::cpu
