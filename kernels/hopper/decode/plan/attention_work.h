// The work of attention over the caches: splits of a sequence's visible positions, blocks of a split, and the order in
// which an SM takes them. Blocks are counted from the first visible position on. Host and device.
#pragma once

#include "kernels/hopper/decode/plan/work.h"

namespace coda::hopper::decode {

/// Keys and values of a block lie in one stage, half each.
inline constexpr int kBlockHalfBytes = 8192;
static_assert(2 * kBlockHalfBytes <= stage_bytes(false));
CODA_HD constexpr int block_positions(int head_dim) { return kBlockHalfBytes / 2 / head_dim; }

/// A split has up to one block per consumer warp, and more where kMaxSplits would be exceeded, or where a sequence has
/// up to kUnsplitBlocks: to reduce splits takes longer than a second block.
inline constexpr int kMaxSplits = 16, kUnsplitBlocks = 2 * kConsumerWarps;

/// Splits and blocks of a sequence. They depend only on its visible positions, so its sums have one order.
struct Splits {
    int number = 0, blocks = 0;

    CODA_HD int first_block(int split) const {
        const int each = blocks / number, longer = blocks % number;
        return split * each + (split < longer ? split : longer);
    }
};
CODA_HD Splits splits_of(int visible, int head_dim) {
    const int positions = block_positions(head_dim), blocks = (visible + positions - 1) / positions;
    if (blocks <= kUnsplitBlocks) return {blocks > 0 ? 1 : 0, blocks};
    const int wanted = (blocks + kConsumerWarps - 1) / kConsumerWarps;
    return {wanted < kMaxSplits ? wanted : kMaxSplits, blocks};
}

/// A tile of attention: a split of the positions of one key/value head of one sequence.
struct AttentionTile {
    int sequence, split, kv_head;
    Splits splits;
    int first_block, blocks;  // of this split
};

/// The tiles of one step, by sequence, split and key/value head, which go to the SMs as a GEMM's tiles do (own_tiles).
/// visible(b): visible_positions of sequence b.
template <class Visible>
struct AttentionTiles {
    Visible visible;
    int batch, kv_heads, head_dim;

    CODA_HD int number() const {
        int sum = 0;
        for (int b = 0; b < batch; ++b) sum += splits_of(visible(b), head_dim).number * kv_heads;
        return sum;
    }
    CODA_HD AttentionTile tile(int index) const {
        int sequence = 0;
        Splits splits = splits_of(visible(0), head_dim);
        while (index >= splits.number * kv_heads) {
            index -= splits.number * kv_heads;
            splits = splits_of(visible(++sequence), head_dim);
        }
        const int split = index / kv_heads, first = splits.first_block(split);
        return {sequence, split, index % kv_heads, splits, first, splits.first_block(split + 1) - first};
    }
};

/// Where a sequence has several splits, an epilogue warp reduces them for kReducedColumns columns of a query head.
inline constexpr int kReducedColumns = 32;
struct ReduceTask {
    int sequence, head, column;
};
/// The tasks of all sequences, whether they have splits or not. They go to all epilogue warps of all SMs in turn.
struct ReduceTasks {
    int heads, head_dim;

    CODA_HD int of_head() const { return head_dim / kReducedColumns; }
    CODA_HD int number(int batch) const { return batch * heads * of_head(); }
    CODA_HD ReduceTask task(int index) const {
        const int head = index / of_head();
        return {head / heads, head % heads, index % of_head() * kReducedColumns};
    }
};
/// The tasks of an epilogue warp: first, first + step, ...
struct OwnReductions {
    int first, step;
};
CODA_HD OwnReductions own_reductions(int sm, int epilogue_warp, int grid) {
    return {sm + grid * epilogue_warp, grid * kEpilogueWarps};
}

}  // namespace coda::hopper::decode
