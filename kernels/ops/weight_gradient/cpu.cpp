// WeightGradient on the CPU.
#include "kernels/cpu/execute.h"
#include "kernels/cpu/store_tile.h"
#include "kernels/ops/weight_gradient/op.h"

namespace coda::cpu {

template <>
void execute(const WeightGradient& op, const Memory& memory) {
    dispatch_storage(op.name, op.dy.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const GemmShape shape{.m = op.dy.cols, .n = op.x.cols, .k = op.dy.rows};
        require(shape.m > 0 && shape.n > 0 && shape.k > 0, op.name, ": an empty GEMM, out ", shape.m, ", in ", shape.n,
                ", M ", shape.k);
        const GemmOperand<Storage> dy{operands.get<Storage>("dy", op.dy, shape.k, shape.m), op.dy.ld, Major::mn};
        const GemmOperand<Storage> x{operands.get<Storage>("x", op.x, shape.k, shape.n), op.x.ld, Major::mn};
        const auto alpha = scalar_or_one<Compute>(operands, "alpha", op.alpha);
        const auto* gamma = operands.get_optional<Compute>("gamma", op.gamma, 1, shape.n);
        const auto grad = rows_of<Compute>(operands, "grad", op.grad, shape.m, shape.n);
        gemm<Compute>(shape, dy, x, [&](const AccumulatorTile<Compute>& tile) {
            const auto factor = [&](std::int64_t) { return alpha; };
            if (gamma) {
                store_tile(
                    tile, factor, [&](std::int64_t column) { return gamma[column]; }, op.grad.beta, grad);
            } else {
                store_tile(tile, factor, one, op.grad.beta, grad);
            }
        });
    });
}

}  // namespace coda::cpu
