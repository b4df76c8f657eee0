// The sizes of an attention op, checked against each other: for every interpreter. Host.
#pragma once

#include <cstdint>

#include "kernels/core/error.h"
#include "kernels/core/op.h"

namespace coda {

/// T, H, Hk, hd of an op and the columns of its heads in qkv (M, Nq).
struct AttentionShape {
    std::int64_t rows = 0;  // M
    std::int64_t seq_len = 0, heads = 0, kv_heads = 0, head_dim = 0;

    std::int64_t batch() const { return rows / seq_len; }
    std::int64_t group() const { return heads / kv_heads; }
    std::int64_t head_slots() const { return heads + 2 * kv_heads; }  // [q heads | k heads | v heads]
    std::int64_t columns() const { return head_slots() * head_dim; }
    std::int64_t key_slot(std::int64_t kv_head) const { return heads + kv_head; }
    std::int64_t value_slot(std::int64_t kv_head) const { return heads + kv_heads + kv_head; }
};

/// The shape of an attention op. Throws Error where its constants contradict each other or qkv's rows.
template <class Op>
AttentionShape attention_shape(const Op& op) {
    require(op.seq_len >= 1 && op.heads >= 1 && op.kv_heads >= 1 && op.head_dim >= 1, Op::name, ": seq_len ",
            op.seq_len, ", heads ", op.heads, ", kv_heads ", op.kv_heads, ", head_dim ", op.head_dim,
            " must all be positive");
    require(op.heads % op.kv_heads == 0, Op::name, ": ", op.heads, " query heads are not a multiple of ", op.kv_heads,
            " key/value heads");
    require(op.qkv.rows % op.seq_len == 0, Op::name, ": qkv has ", op.qkv.rows,
            " rows, not a multiple of the sequence length ", op.seq_len);
    require(op.window == 0 || op.doc_start, Op::name, ": the window of ", op.window,
            " keys is in doc_start, which is missing");
    return {op.qkv.rows, op.seq_len, op.heads, op.kv_heads, op.head_dim};
}

}  // namespace coda
