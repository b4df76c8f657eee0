// The sizes of an attention op, checked against each other: for every interpreter. Host.
#pragma once

#include <cstdint>

#include "kernels/core/head_shape.h"

namespace coda {

/// T and the heads of an op on qkv (M, Nq).
struct AttentionShape : HeadShape {
    std::int64_t rows = 0;  // M
    std::int64_t seq_len = 0;

    std::int64_t batch() const { return rows / seq_len; }
};

/// The shape of an attention op. Throws Error where its constants contradict each other or qkv's rows.
template <class Op>
AttentionShape attention_shape(const Op& op) {
    const HeadShape heads = head_shape(op, "seq_len", op.seq_len);
    require(op.qkv.rows % op.seq_len == 0, Op::name, ": qkv has ", op.qkv.rows,
            " rows, not a multiple of the sequence length ", op.seq_len);
    require(op.window == 0 || op.doc_start, Op::name, ": the window of ", op.window,
            " keys is in doc_start, which is missing");
    return {heads, op.qkv.rows, op.seq_len};
}

}  // namespace coda
