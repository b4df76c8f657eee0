// Tile, shared memory and order of work of forward attention. Host and device.
#pragma once

#include "kernels/core/dtype.h"
#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/sm90/limits.h"

namespace coda::hopper {

/// A consumer warpgroup has 64 query rows. At head_dim 64 the exponentials take as long as the GEMMs, so three
/// warpgroups share them; at 128 there are registers for two.
template <int kHeadDim_>
struct ForwardTile {
    static_assert(limits::is_head_dim(kHeadDim_), "attention has no tile for this head_dim");
    static constexpr int kHeadDim = kHeadDim_;
    static constexpr bool kRounds = false;  // whether o is stored as FP8 codes too
    static constexpr int kPanels = kHeadDim / 64;
    static constexpr int kConsumers = kHeadDim == 64 ? 3 : 2;
    static constexpr int kThreads = kWarpgroupThreads * (1 + kConsumers);
    static constexpr int kQueries = 64 * kConsumers;
    static constexpr int kKeys = 128;
    static constexpr int kStages = kHeadDim == 64 ? 4 : 2;  // of keys, and of values
    static constexpr int kQueryStages = 2;                  // the next tile's queries load while this one ends
    static constexpr int kProducerRegisters = kHeadDim == 64 ? 32 : 40;
    static constexpr int kConsumerRegisters = kHeadDim == 64 ? 160 : 232;

    static constexpr int kQueryPanelBytes = kQueries * kPanelRowBytes;
    static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
    static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;
    static constexpr int kKeyBytes = kPanels * kKeyPanelBytes;  // one stage of keys, or of values
    static constexpr int kOutPanelBytes = 64 * kPanelRowBytes;
    static constexpr int kBarriers = 2 * kQueryStages + 4 * kStages;
    static constexpr int kWorkBytes = 16;  // of a tile's place
    static constexpr int kOutBytes = kQueryBytes;
    static constexpr int kSharedBytes = kQueryStages * (kQueryBytes + kWorkBytes) + kOutBytes +
                                        2 * kStages * kKeyBytes + 8 * kBarriers + kSwizzleAtomBytes;
    static_assert(8 * kBarriers % kWorkBytes == 0, "a tile's place is read in one piece");
    static_assert(kSharedBytes <= kMaxSharedBytes,
                  "the tile needs more shared memory than a block has: take fewer stages");
};

/// The order of tiles. (sequence, kv head) pairs are taken a section at a time, so that the section's keys and values
/// stay in L2. In a section the longest tiles (last queries) come first, and the query heads of a pair are adjacent.
///
/// The last tile of a sequence ends with it, rounded up to 64 rows. The rows that the tiles have too many lie before
/// the first query, where a row sees the fewest keys. They fill whole warpgroups.
///
/// A block's first tile has the block's number. From then on blocks draw: a counter says how many tiles have been
/// drawn, so that whichever block is free takes the next one, and none is idle before the last tiles. A block draws
/// until it gets an index past the last tile, which makes count() draws of all blocks together. The last draw finds
/// `last_draw` in the counter and makes it 0 again (drawn, as atomicInc), so that the next launch finds what this one
/// found.
struct ForwardOrder {
    int query_tiles = 0;
    int pairs = 0, group = 1;
    int section = 1;  // pairs in a section
    int before = 0;   // rows of the first tile that lie before the sequence

    struct Work {
        int query_tile, pair, head_in_group;
    };

    CODA_HD constexpr int count() const { return query_tiles * pairs * group; }

    CODA_HD constexpr unsigned last_draw() const { return static_cast<unsigned>(count()) - 1; }
    /// What a draw that finds `counter` leaves there.
    CODA_HD constexpr unsigned drawn(unsigned counter) const { return counter >= last_draw() ? 0 : counter + 1; }
    /// Index of the tile of a draw that finds `counter`; count() and above: there are no more.
    static CODA_HD constexpr int index(unsigned counter, int blocks) { return blocks + static_cast<int>(counter); }
    /// The first query of a tile; negative where the tile begins before the sequence.
    template <class Tile>
    CODA_HD constexpr int first_query(const Work& work) const {
        return work.query_tile * Tile::kQueries - before;
    }
    CODA_HD constexpr Work at(int index) const {
        const int per_section = section * group * query_tiles;
        const int first = index / per_section * section;
        const int width = (pairs - first < section ? pairs - first : section) * group;
        const int local = index % per_section;
        const int head = local % width;
        return {query_tiles - 1 - local / width, first + head / group, head % group};
    }
};

/// The order for `pairs` of (sequence, key/value head), with `group` query heads each.
template <class Tile>
constexpr ForwardOrder forward_order(std::int64_t seq_len, int pairs, int group) {
    constexpr std::int64_t kSectionBytes = 32 << 20;  // of keys and values that stay in L2
    const std::int64_t pair_bytes = 4 * seq_len * Tile::kHeadDim;
    const std::int64_t sections = ceil_div(pairs * pair_bytes, kSectionBytes);
    const std::int64_t tiles = ceil_div(seq_len, std::int64_t{Tile::kQueries});
    return {.query_tiles = static_cast<int>(tiles),
            .pairs = pairs,
            .group = group,
            .section = static_cast<int>(ceil_div(std::int64_t{pairs}, sections)),
            .before = static_cast<int>(tiles * Tile::kQueries - round_up(seq_len, std::int64_t{64}))};
}

}  // namespace coda::hopper
