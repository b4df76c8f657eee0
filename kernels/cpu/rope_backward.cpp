// RopeBackward - row statistic of the QKV projection and the transposed rotation, one row at a time.
#include "kernels/cpu/access.h"
#include "kernels/cpu/operations.h"
#include "kernels/math/rope.h"

namespace coda::cpu {

void execute(const RopeBackward& op, const Memory& memory) {
    dispatch_storage(RopeBackward::name, op.qkv.dtype, [&]<class Types>(Types) {
        using Storage = typename Types::Storage;
        using Compute = typename Types::Compute;
        const std::int64_t rows = op.qkv.rows, columns = op.qkv.cols, head_dim = op.head_dim;
        require(head_dim >= 2 && head_dim % 2 == 0, RopeBackward::name, ": head_dim ", head_dim, " is not even");
        require(op.rotated >= 0 && op.rotated <= columns && op.rotated % head_dim == 0, RopeBackward::name,
                ": rotated ", op.rotated, " is not a number of whole heads of ", head_dim, " within ", columns,
                " columns");
        const Operands operands(RopeBackward::name, memory);
        const auto* qkv = operands.get<Storage>("qkv", op.qkv, rows, columns);
        auto* dqkv = operands.get<Storage>("dqkv", op.dqkv, rows, columns);
        const auto* positions = operands.get<std::int32_t>("positions", op.positions, 1, rows);
        const auto* rope = operands.get<Compute>("rope", op.rope, op.rope.rows, head_dim);
        auto* dot = operands.get<Compute>("dot", op.dot, 1, rows);
        operands.require_indices("positions", positions, rows, op.rope.rows);

#pragma omp parallel for
        for (std::int64_t m = 0; m < rows; ++m) {
            const Storage* value = qkv + m * op.qkv.ld;
            Storage* gradient = dqkv + m * op.dqkv.ld;
            Compute sum = 0;
#pragma omp simd reduction(+ : sum)
            for (std::int64_t j = 0; j < columns; ++j)
                sum += static_cast<Compute>(value[j]) * static_cast<Compute>(gradient[j]);
            dot[m] = sum;

            const Compute* angle = rope + positions[m] * op.rope.ld;
            for (std::int64_t head = 0; head < op.rotated; head += head_dim)
                for (std::int64_t j = 0; j < head_dim; j += 2) {
                    Storage* pair = gradient + head + j;
                    const auto turned =
                        unrotate_pair(Pair<Compute>{static_cast<Compute>(pair[0]), static_cast<Compute>(pair[1])},
                                      angle[j], angle[j + 1]);
                    pair[0] = static_cast<Storage>(turned.first);
                    pair[1] = static_cast<Storage>(turned.second);
                }
        }
    });
}

}  // namespace coda::cpu
