// The work space of AttentionBackward on a Hopper GPU: sections over sequences that are padded to whole tiles. Host.
#pragma once

#include <cstdint>

#include "kernels/ops/attention/op.h"

namespace coda {

struct AttentionScratch {
    // BackwardTile's: rows of a key block, to which sequences are padded, and rows of a query tile.
    static constexpr std::int64_t kPaddedRows = 128;
    static constexpr std::int64_t query_rows(std::int64_t head_dim) { return head_dim == 64 ? 128 : 64; }

    std::int64_t padded = 0;  // rows of a padded sequence
    // Bytes from the start of the work space; each section begins at a multiple of 256.
    std::int64_t dquery = 0;  // fp32 sums of dq
    std::int64_t lse = 0;     // lse per query head and row, in units of log 2
    std::int64_t delta = 0;   // delta per query head and row
    std::int64_t start = 0;   // document starts
    std::int64_t turns = 0;   // a turn for every query tile
    std::int64_t ticket = 0;  // the next work item
    std::int64_t bytes = 0;

    explicit AttentionScratch(const AttentionBackward& op) : padded(round_up(op.seq_len, kPaddedRows)) {
        const std::int64_t batch = op.qkv.rows / op.seq_len, rows = batch * op.heads * padded;
        dquery = take(rows * op.head_dim);
        lse = take(rows);
        delta = take(rows);
        start = take(batch * padded);
        turns = take(rows / query_rows(op.head_dim));
        ticket = take(1);
    }

  private:
    std::int64_t take(std::int64_t words) {
        const std::int64_t first = bytes;
        bytes += round_up(words * size_of(DType::f32), 256);
        return first;
    }
};

}  // namespace coda
