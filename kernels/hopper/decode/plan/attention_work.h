// The work of attention over the caches: splits of a sequence's positions, blocks of a split, and the order in which an
// SM takes them. Host and device.
#pragma once

#include "kernels/hopper/decode/plan/work.h"

namespace coda::hopper::decode {

/// Keys and values of a block lie in one chunk, half each.
inline constexpr int kBlockHalfBytes = 8192;
static_assert(2 * kBlockHalfBytes <= kChunkBytes);
CODA_HD constexpr int block_positions(int head_dim) { return kBlockHalfBytes / 2 / head_dim; }

/// A split has up to a block per consumer warp. Only where kMaxSplits are too few for that have its warps several.
inline constexpr int kMaxSplits = 16;

/// Splits and blocks of a sequence: they depend on its length alone, so its sums have one order.
struct Splits {
    int number = 0, blocks = 0;

    CODA_HD int first_block(int split) const {
        const int each = blocks / number, longer = blocks % number;
        return split * each + (split < longer ? split : longer);
    }
};
CODA_HD Splits splits_of(int length, int head_dim) {
    const int positions = block_positions(head_dim), blocks = (length + positions - 1) / positions;
    const int wanted = (blocks + kConsumerWarps - 1) / kConsumerWarps;
    return {wanted < kMaxSplits ? wanted : kMaxSplits, blocks};
}

/// A split of the positions of one key/value head of one sequence.
struct AttentionUnit {
    int sequence, split, kv_head;
    Splits splits;
    int first_block, blocks;  // of this split
};

/// The units of one step: by sequence, split and key/value head, dealt to the SMs like tiles. lengths(b): planned.
template <class Lengths>
struct AttentionUnits {
    Lengths lengths;
    int batch, kv_heads, head_dim;

    CODA_HD int number() const {
        int sum = 0;
        for (int b = 0; b < batch; ++b) sum += splits_of(lengths(b), head_dim).number * kv_heads;
        return sum;
    }
    CODA_HD AttentionUnit unit(int index) const {
        int sequence = 0;
        Splits splits = splits_of(lengths(0), head_dim);
        while (index >= splits.number * kv_heads) {
            index -= splits.number * kv_heads;
            splits = splits_of(lengths(++sequence), head_dim);
        }
        const int split = index / kv_heads, first = splits.first_block(split);
        return {sequence, split, index % kv_heads, splits, first, splits.first_block(split + 1) - first};
    }
};

/// Where a sequence has several splits, an epilogue warp adds those of kJoinedColumns columns of a query head: its
/// task.
inline constexpr int kJoinedColumns = 32;
struct JoinTask {
    int sequence, head, column;
};
/// The tasks of all sequences, whether they have splits or not, dealt to all epilogue warps of all SMs.
struct JoinTasks {
    int heads, head_dim;

    CODA_HD int of_head() const { return head_dim / kJoinedColumns; }
    CODA_HD int number(int batch) const { return batch * heads * of_head(); }
    CODA_HD JoinTask task(int index) const {
        const int head = index / of_head();
        return {head / heads, head % heads, index % of_head() * kJoinedColumns};
    }
};
/// The tasks of an epilogue warp: first, first + step, ...
struct OwnJoins {
    int first, step;
};
CODA_HD OwnJoins own_joins(int sm, int epilogue_warp, int grid) {
    return {sm + grid * epilogue_warp, grid * kEpilogueWarps};
}

}  // namespace coda::hopper::decode
