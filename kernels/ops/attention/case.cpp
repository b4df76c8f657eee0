#include "kernels/ops/attention/case.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

std::vector<std::int32_t> packed_documents(std::int64_t batch, std::int64_t seq_len, double mean) {
    std::mt19937_64 bits(1);
    std::lognormal_distribution<double> length(std::log(mean) - 0.5, 1);
    std::vector<std::int32_t> starts;
    std::int64_t left = 0;  // tokens of the document
    for (std::int64_t m = 0; m < batch * seq_len; ++m) {
        const auto position = static_cast<std::int32_t>(m % seq_len);
        const bool begins = left == 0;
        if (begins) left = std::max<std::int64_t>(1, std::llround(length(bits)));
        starts.push_back(begins || position == 0 ? position : starts.back());
        --left;
    }
    return starts;
}

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
    const View next_tile = view(DType::i32, 1, 1, 0);
    const std::int64_t normed = shape.heads + shape.kv_heads;
    const View gain = view(precision.master, 2, shape.head_dim, 0);
    const View pre = view(precision.storage, rows, normed * shape.head_dim, shape.gap);
    const View rho = view(precision.statistic, normed, rows, shape.gap);
    const View dgain =
        view(precision.statistic, normed * AttentionBackward::sum_tiles(rows, shape.seq_len), shape.head_dim, 0);
    const View bias = view(precision.master, 1, qkv.cols, 0);
    const View dbias =
        view(precision.statistic, AttentionBackward::sum_tiles(rows, shape.seq_len), qkv.cols, shape.gap);

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
    made.forward.next_tile = next_tile;
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
    made.norm_backward = made.rope_backward;
    made.norm_backward.gain = gain;
    made.norm_backward.pre = pre;
    made.norm_backward.rho = rho;
    made.norm_backward.dgain = dgain;
    made.norm_backward.eps = 0.25;
    made.bias_backward = made.rope_backward;
    made.bias_backward.bias = bias;
    made.bias_backward.dbias = dbias;
    made.unrotated_backward = made.bias_backward;
    made.unrotated_backward.positions = made.unrotated_backward.rope = {};
    scratch.cols = scratch.ld =
        std::max({std::int64_t{256}, made.backward.scratch_bytes(), made.rope_backward.scratch_bytes()});
    made.buffers[kScratch] = scratch;
    made.backward.scratch = scratch;
    made.rope_backward.scratch = scratch;
    made.norm_backward.scratch = scratch;
    made.bias_backward.scratch = scratch;
    made.unrotated_backward.scratch = scratch;
    return made;
}

Rounded add_codes(AttentionCase& made, AttentionBuffer of, DType format) {
    const View matrix = made.buffers[of];
    const auto view = [&](DType dtype, std::int64_t rows, std::int64_t columns, ColumnOrder order) {
        View next;
        next.buffer = static_cast<BufferId>(made.buffers.size());
        next.dtype = dtype;
        next.rows = rows;
        next.cols = next.ld = columns;
        next.order = order;
        made.buffers.push_back(next);
        return next;
    };
    const DType statistic = made.buffers[kLse].dtype;
    Rounded codes;
    codes.scale = view(statistic, 1, 1, ColumnOrder::natural);
    codes.rows = view(format, matrix.rows, matrix.cols, ColumnOrder::natural);
    codes.columns = view(format, matrix.cols, matrix.rows, ColumnOrder::paired);
    codes.amax = view(statistic, 1, 1, ColumnOrder::natural);
    return codes;
}

namespace {

enum class Pass { forward, backward, rope_backward, norm_backward, bias_backward };

/// One op of a case. No forward pass needs to run first: any contents of lse, delta and o belong to some logits.
template <Pass kPass>
OpCase made(Size size) {
    const AttentionCaseShape shape =
        size == Size::step ? AttentionCaseShape{4, 8192, 32, 8, 64} : AttentionCaseShape{2, 130, 4, 2, 64};
    AttentionCase attention = make_attention(shape, kMixedBf16);
    attention.forward.doc_start = attention.backward.doc_start = attention.rope_backward.doc_start =
        attention.norm_backward.doc_start = attention.bias_backward.doc_start = View{};
    Op op = attention.forward;
    if (kPass == Pass::backward) op = attention.backward;
    if (kPass == Pass::rope_backward) op = attention.rope_backward;
    if (kPass == Pass::norm_backward) op = attention.norm_backward;
    if (kPass == Pass::bias_backward) op = attention.bias_backward;
    OpCase result;
    for (const View& view : attention.buffers) {
        const auto buffer = static_cast<AttentionBuffer>(view.buffer);
        Fill fill = Fill::normal;
        double scale = 1;
        if (buffer == kLse) fill = Fill::positive, scale = 4;
        if (buffer == kRstd || buffer == kGain || buffer == kRho) fill = Fill::positive;
        if (buffer == kRope) fill = Fill::angles;
        if (buffer == kPositions || buffer == kDocStart || buffer == kNextTile) fill = Fill::positions;
        if (buffer == kPositions) scale = static_cast<double>(shape.seq_len);
        result.buffers.push_back({"", view, fill, scale, Access::in});
    }
    for_each_operand(op, [&](const char* name, const View& view, Access access) {
        Buffer& buffer = result.buffers[static_cast<std::size_t>(view.buffer)];
        buffer.name = name;
        buffer.access = access;
        if (access != Access::in && view.dtype != DType::i32) buffer.fill = Fill::nothing;
    });
    return result.finish(op, text("B ", shape.batch, " T ", shape.seq_len, " H ", shape.heads, "/", shape.kv_heads,
                                  " hd ", shape.head_dim));
}

}  // namespace

// Timed by coda_bench attention.
template <>
OpCases cases_of<Attention>() {
    return {.programs = {}, .others = {{made<Pass::forward>, false}}};
}
template <>
OpCases cases_of<AttentionBackward>() {
    return {.programs = {},
            .others = {{made<Pass::backward>, false},
                       {made<Pass::rope_backward>, false},
                       {made<Pass::norm_backward>, false},
                       {made<Pass::bias_backward>, false}}};
}

}  // namespace coda::cases
