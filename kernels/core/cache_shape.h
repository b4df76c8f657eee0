// The sizes of an op on a key/value cache, checked against its operands: for every interpreter. Host.
#pragma once

#include "kernels/core/head_shape.h"
#include "kernels/core/operand_check.h"

namespace coda {

struct CacheShape : HeadShape {
    std::int64_t rows = 0;       // of qkv
    std::int64_t sequences = 0;  // S
    std::int64_t context = 0;    // C

    /// Row of a cache.
    std::int64_t cache_row(std::int64_t sequence, std::int64_t kv_head, std::int64_t position) const {
        return (sequence * kv_heads + kv_head) * context + position;
    }
};

/// The shape of the cache of StoreKeyValue or DecodeAttention. Throws Error where the op's constants contradict each
/// other or its operands.
template <class Op>
CacheShape cache_shape(const Op& op) {
    const HeadShape heads = head_shape(op, "context", op.context);
    const std::int64_t per_sequence = op.kv_heads * op.context;
    require(op.keys.rows >= per_sequence && op.keys.rows % per_sequence == 0, Op::name, ": keys has ", op.keys.rows,
            " rows, not a multiple of the ", op.kv_heads, " x ", op.context, " of a sequence");
    const CacheShape shape{heads, op.qkv.rows, op.keys.rows / per_sequence, op.context};
    const DType storage = op.qkv.dtype;
    require(op.qkv.rows >= 1, Op::name, ": operand qkv is empty");
    require_operand(Op::name, "qkv", op.qkv, op.qkv.rows, shape.columns(), storage);
    require_operand(Op::name, "keys", op.keys, op.keys.rows, op.head_dim, storage);
    require_operand(Op::name, "values", op.values, op.keys.rows, op.head_dim, storage);
    if constexpr (requires { op.place; }) {
        require_operand(Op::name, "place", op.place, 1, 3, DType::i32);
    } else {
        require(op.rows_each >= 1 && shape.rows == op.rows_each * shape.sequences, Op::name, ": qkv has ", shape.rows,
                " rows, and the cache has ", shape.sequences, " sequences of ", op.rows_each, " rows each");
        require_operand(Op::name, "lengths", op.lengths, 1, shape.rows, DType::i32);
        require_operand(Op::name, "o", op.o, shape.rows, shape.heads * shape.head_dim, storage);
    }
    return shape;
}

}  // namespace coda
