#include "tools/bench/attention_case.h"

#include <algorithm>

namespace coda::bench {

AttentionCase make_attention(const AttentionCaseShape& shape, const Precision& precision) {
    AttentionCase made;
    const auto view = [&](DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
        View next;
        next.buffer = static_cast<BufferId>(made.buffers.size());
        next.dtype = dtype;
        next.rows = rows;
        next.cols = columns;
        next.ld = columns + gap;
        made.buffers.push_back(next);
        return next;
    };
    const std::int64_t rows = shape.rows(), width = shape.heads * shape.head_dim;
    const View qkv = view(precision.storage, rows, shape.slots() * shape.head_dim, shape.gap);
    const View o = view(precision.storage, rows, width, shape.gap);
    const View lse = view(precision.statistic, shape.heads, rows, shape.gap);
    const View doc_start = view(DType::i32, 1, rows, 0);
    const View dout = view(precision.storage, rows, width, shape.gap);
    const View dqkv = view(precision.storage, rows, qkv.cols, shape.gap);
    View scratch = view(DType::u8, 1, 0, 0);
    const View delta = view(precision.statistic, shape.heads, rows, shape.gap);
    const View positions = view(DType::i32, 1, rows, 0);
    const View rope = view(precision.statistic, shape.seq_len, shape.head_dim, 0);
    const View dot = view(precision.statistic, shape.slots(), rows, shape.gap);
    const View rstd = view(precision.statistic, 1, rows, 0);

    const auto describe = [&](auto& op) {
        op.qkv = qkv;
        op.lse = lse;
        if (shape.documents) op.doc_start = doc_start;
        op.seq_len = shape.seq_len;
        op.heads = shape.heads;
        op.kv_heads = shape.kv_heads;
        op.head_dim = shape.head_dim;
    };
    describe(made.forward);
    made.forward.o = o;
    describe(made.backward);
    made.backward.o = o;
    describe(made.rope_backward);
    made.rope_backward.delta = delta;
    made.rope_backward.positions = positions;
    made.rope_backward.rope = rope;
    made.rope_backward.rstd = rstd;
    made.rope_backward.dot = dot;
    const auto finish = [&](auto& op) {
        op.dout = dout;
        op.dqkv = dqkv;
    };
    finish(made.backward);
    finish(made.rope_backward);
    scratch.cols = scratch.ld =
        std::max({std::int64_t{256}, made.backward.scratch_bytes(), made.rope_backward.scratch_bytes()});
    made.buffers[kScratch] = scratch;
    made.backward.scratch = scratch;
    made.rope_backward.scratch = scratch;
    return made;
}

}  // namespace coda::bench
