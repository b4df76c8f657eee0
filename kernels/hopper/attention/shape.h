// What forward and backward attention check of their operands before a kernel is chosen. Host.
#pragma once

#include <cstdint>

#include "kernels/core/error.h"
#include "kernels/core/op.h"

namespace coda::hopper {

struct AttentionGeometry {
    int batch = 0, seq_len = 0, heads = 0, kv_heads = 0, head_dim = 0;

    int group() const { return heads / kv_heads; }  // query heads of one key/value head
    int pairs() const { return batch * kv_heads; }  // (sequence, key/value head)
};

/// Throws Error naming the op and the field unless `view` is a (rows, columns) matrix of `dtype`.
inline void require_operand(const char* op, const char* field, const View& view, std::int64_t rows,
                            std::int64_t columns, DType dtype) {
    require(view && view.rows == rows && view.cols == columns && view.dtype == dtype, op, ": ", field, " is ",
            view.rows, " x ", view.cols, " ", name_of(view.dtype), ", expected ", rows, " x ", columns, " ",
            name_of(dtype));
}

template <class Op>
AttentionGeometry attention_geometry(const Op& op) {
    require(op.head_dim == 64 || op.head_dim == 128, op.name, ": head_dim ", op.head_dim,
            ", Hopper kernels take 64 and 128");
    require(op.kv_heads > 0 && op.heads % op.kv_heads == 0, op.name, ": ", op.heads,
            " query heads are not a multiple of ", op.kv_heads, " key/value heads");
    require(op.seq_len > 0 && op.qkv.rows % op.seq_len == 0, op.name, ": ", op.qkv.rows,
            " rows are not whole sequences of ", op.seq_len);
    require_operand(op.name, "qkv", op.qkv, op.qkv.rows, (op.heads + 2 * op.kv_heads) * op.head_dim, DType::bf16);
    require_operand(op.name, "lse", op.lse, op.heads, op.qkv.rows, DType::f32);
    if (op.doc_start) require_operand(op.name, "doc_start", op.doc_start, 1, op.qkv.rows, DType::i32);
    require(op.qkv.rows < (std::int64_t{1} << 31) - 256, op.name, ": ", op.qkv.rows, " rows are too many");
    return {static_cast<int>(op.qkv.rows / op.seq_len), static_cast<int>(op.seq_len), static_cast<int>(op.heads),
            static_cast<int>(op.kv_heads), static_cast<int>(op.head_dim)};
}

}  // namespace coda::hopper
