// AttentionBackward with rope and without norm or bias, on random operands of the CPU: what the tests of these two
// start from.
#pragma once

#include <vector>

#include "kernels/cpu/run.h"
#include "tests/kernels/fixture.h"

namespace coda::plain_backward {

inline constexpr std::int64_t kBatch = 8, kSeqLen = 70, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
inline constexpr std::int64_t kRows = kBatch * kSeqLen, kNormed = kHeads + kKvHeads, kSlots = kNormed + kKvHeads,
                              kColumns = kSlots * kHeadDim;

/// The inputs; o and lse are those of the forward pass. dqkv, dot and rstd are left to the caller.
inline AttentionBackward inputs(test::Buffers& buffers, DType storage) {
    const DType statistic = test::compute_of(storage);
    const auto shape = [](auto& op) {
        op.seq_len = kSeqLen;
        op.heads = kHeads;
        op.kv_heads = kKvHeads;
        op.head_dim = kHeadDim;
    };
    Attention forward;
    forward.qkv = buffers.random(storage, kRows, kColumns, -2, 2);
    forward.o = buffers.matrix(storage, kRows, kHeads * kHeadDim);
    forward.lse = buffers.matrix(statistic, kHeads, kRows);
    shape(forward);
    cpu::run(forward, buffers.memory());

    AttentionBackward op;
    op.qkv = forward.qkv;
    op.o = forward.o;
    op.lse = forward.lse;
    op.dout = buffers.random(storage, kRows, kHeads * kHeadDim);
    std::vector<int> positions;
    for (int m = 0; m < kRows; ++m) positions.push_back(m % static_cast<int>(kSeqLen));
    op.positions = buffers.indices(positions);
    op.rope = buffers.random(statistic, kSeqLen, kHeadDim, -1, 1);  // of no rotation: the op takes the transpose
    shape(op);
    return op;
}

/// Adds its outputs, without gaps.
inline void add_outputs(AttentionBackward& op, test::Buffers& buffers, DType storage) {
    op.dqkv = buffers.matrix(storage, kRows, kColumns);
    op.dot = buffers.matrix(test::compute_of(storage), kSlots, kRows);
}

}  // namespace coda::plain_backward
