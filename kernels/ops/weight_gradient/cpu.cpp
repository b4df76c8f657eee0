// WeightGradient on the CPU.
#include "kernels/core/factors.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/f8.h"
#include "kernels/cpu/store_tile.h"
#include "kernels/ops/weight_gradient/op.h"

namespace coda::cpu {

namespace {

/// grad (+)= alpha dyᵀ x ⊙ gamma for factors whose values are `Storage`.
template <class Compute, class Storage>
void accumulate(const WeightGradient& op, const Operands& operands, const GemmShape& shape,
                const GemmOperand<Storage>& dy, const GemmOperand<Storage>& x, Compute alpha) {
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
}

/// For transposed codes, whose tokens have one order.
void execute_codes(const WeightGradient& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    const DecodedMatrix dy(operands, memory, "dy", op.dy, op.dy.order), x(operands, memory, "x", op.x, op.dy.order);
    const GemmShape shape{.m = op.dy.rows, .n = op.x.rows, .k = op.dy.cols};
    require(shape.m > 0 && shape.n > 0 && shape.k > 0 && op.x.cols == shape.k, op.name, ": dyᵀ is (", shape.m, ", ",
            shape.k, ") and xᵀ (", shape.n, ", ", op.x.cols, ")");
    accumulate(op, operands, shape, dy.operand(), x.operand(), *operands.get<float>("undo", op.x.undo, 1, 1));
}

}  // namespace

template <>
void execute(const WeightGradient& op, const Memory& memory) {
    if (has_codes(op)) return execute_codes(op, memory);
    dispatch_storage(op.name, op.dy.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const GemmShape shape{.m = op.dy.cols, .n = op.x.cols, .k = op.dy.rows};
        require(shape.m > 0 && shape.n > 0 && shape.k > 0, op.name, ": an empty GEMM, out ", shape.m, ", in ", shape.n,
                ", M ", shape.k);
        const GemmOperand<Storage> dy{operands.get<Storage>("dy", op.dy, shape.k, shape.m), op.dy.ld, Major::mn};
        const GemmOperand<Storage> x{operands.get<Storage>("x", op.x, shape.k, shape.n), op.x.ld, Major::mn};
        accumulate(op, operands, shape, dy, x, scalar_or_one<Compute>(operands, "alpha", op.alpha));
    });
}

}  // namespace coda::cpu
