// The work of attention over the caches: splits of a sequence's positions, blocks of a split, and the order in which an
// SM takes them. Host and device.
#pragma once

#include "kernels/hopper/decode/work.h"

namespace coda::hopper::decode {

/// Keys and values of a block lie in one chunk, half each.
inline constexpr int kBlockHalfBytes = 8192;
static_assert(2 * kBlockHalfBytes <= kChunkBytes);
CODA_HD int block_positions(int head_dim) { return kBlockHalfBytes / 2 / head_dim; }

inline constexpr int kSplitPositions = 256, kMaxSplits = 16;

/// Splits and blocks of a sequence: they depend on its length alone, so its sums have one order.
struct Splits {
    int number = 0, blocks = 0;

    CODA_HD int first_block(int split) const { return static_cast<int>(std::int64_t{split} * blocks / number); }
};
CODA_HD Splits splits_of(int length, int head_dim) {
    const int wanted = (length + kSplitPositions - 1) / kSplitPositions, positions = block_positions(head_dim);
    return {wanted < kMaxSplits ? wanted : kMaxSplits, (length + positions - 1) / positions};
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

/// Who adds the splits of one query head of one sequence.
struct CombineOwner {
    int sm, epilogue_warp;
};
CODA_HD CombineOwner combine_owner(int sequence, int heads, int head, int grid) {
    const int index = sequence * heads + head;
    return {index % grid, index / grid % kEpilogueWarps};
}

}  // namespace coda::hopper::decode
