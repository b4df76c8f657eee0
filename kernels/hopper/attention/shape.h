// What the kernels of attention need of their operands, checked before one is chosen. Host.
#pragma once

#include <cstdint>

#include "kernels/core/attention_shape.h"
#include "kernels/core/error.h"
#include "kernels/core/limits.h"
#include "kernels/core/op.h"
#include "kernels/core/operand_check.h"

namespace coda::hopper {

struct AttentionGeometry {
    int batch = 0, seq_len = 0, heads = 0, kv_heads = 0, head_dim = 0;

    int group() const { return heads / kv_heads; }  // query heads of one key/value head
    int pairs() const { return batch * kv_heads; }  // (sequence, key/value head)
};

template <class Op>
AttentionGeometry attention_geometry(const Op& op) {
    const AttentionShape shape = attention_shape(op);
    limits::require_none(op.name, limits::head_dim_problem("head_dim", op.head_dim));
    require_operand(op.name, "qkv", op.qkv, shape.rows, shape.columns(), DType::bf16);
    require_operand(op.name, "lse", op.lse, op.heads, shape.rows, DType::f32);
    if (op.doc_start) require_operand(op.name, "doc_start", op.doc_start, 1, shape.rows, DType::i32);
    limits::require_none(op.name, limits::tokens_problem("rows of qkv", shape.rows));
    return {static_cast<int>(shape.batch()), static_cast<int>(op.seq_len), static_cast<int>(op.heads),
            static_cast<int>(op.kv_heads), static_cast<int>(op.head_dim)};
}

/// Throws Error naming the op where forward attention cannot count its tiles of `queries` rows.
inline void require_forward_limits(const char* op, const AttentionGeometry& geometry, std::int64_t queries) {
    const std::int64_t tiles = limits::attention_tiles(geometry.batch, geometry.heads, geometry.seq_len, queries);
    limits::require_none(op, limits::tiles_problem("sequences times heads times tiles of seq_len", tiles));
}

/// Throws Error naming the op where the grids and counts of backward attention do not hold the shape; `padded` is
/// seq_len rounded up to whole tiles.
inline void require_backward_limits(const char* op, const AttentionGeometry& geometry, std::int64_t padded) {
    const std::int64_t head_rows = std::int64_t{geometry.batch} * geometry.heads * padded;
    limits::require_none(op, limits::head_rows_problem("sequences times heads times padded rows", head_rows));
    limits::require_none(op, limits::heads_problem("heads", geometry.heads));
}

}  // namespace coda::hopper
