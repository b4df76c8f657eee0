// StoreKeyValue on the CPU.
#include <algorithm>

#include "kernels/core/cache_shape.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/key_value_cache/op.h"

namespace coda::cpu {

template <>
void execute(const StoreKeyValue& op, const Memory& memory) {
    dispatch_storage(op.name, op.qkv.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const CacheShape shape = cache_shape(op);
        const Operands operands(op.name, memory);
        const auto qkv = rows_of<const Storage>(operands, "qkv", op.qkv, shape.rows, shape.columns());
        const auto keys = rows_of<Storage>(operands, "keys", op.keys, op.keys.rows, shape.head_dim);
        const auto values = rows_of<Storage>(operands, "values", op.values, op.keys.rows, shape.head_dim);
        const std::int32_t* place = operands.get<std::int32_t>("place", op.place, 1, 3);
        const std::int64_t sequence = place[0], first = place[1], count = place[2];
        require(sequence >= 0 && sequence < shape.sequences, op.name, ": place names sequence ", sequence,
                ", and the cache has ", shape.sequences);
        require(count >= 0 && count <= shape.rows, op.name, ": place stores ", count, " rows, and qkv has ",
                shape.rows);
        require(first >= 0 && first + count <= shape.context, op.name, ": place stores positions ", first, " to ",
                first + count, ", and the context has ", shape.context);
#pragma omp parallel for
        for (std::int64_t m = 0; m < count; ++m)
            for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
                const std::int64_t row = shape.cache_row(sequence, head, first + m);
                std::copy_n(qkv[m] + shape.key_column(head), shape.head_dim, keys[row]);
                std::copy_n(qkv[m] + shape.value_column(head), shape.head_dim, values[row]);
            }
    });
}

}  // namespace coda::cpu
