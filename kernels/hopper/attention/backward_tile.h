// Tile, shared memory, order of work and work space of backward attention. Host and device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/hopper/sm90/limits.h"

namespace coda::hopper {

/// A block keeps 128 keys and their values and walks the query tiles that see them. Its accumulators (dK, dV, and the
/// logits and their gradients for a query tile) take 192 registers per thread for either head_dim.
template <int kHeadDim_, bool kDocuments_>
struct BackwardTile {
    static_assert(limits::is_head_dim(kHeadDim_), "attention has no tile for this head_dim");
    static constexpr int kHeadDim = kHeadDim_;
    static constexpr bool kDocuments = kDocuments_;
    static constexpr bool kNorm = false;    // whether q and k heads had a norm
    static constexpr bool kBias = false;    // whether q, k and v have a bias
    static constexpr bool kRounds = false;  // whether dqkv is stored as FP8 codes
    static constexpr int kPanels = kHeadDim / 64;
    static constexpr int kConsumers = 2;
    static constexpr int kThreads = kWarpgroupThreads * (1 + kConsumers);
    static constexpr int kKeys = 128;
    static constexpr int kQueries = kHeadDim == 64 ? 128 : 64;
    static constexpr int kStages = 2;  // of Q, of dO, and of dS
    // Stages of dQ on its way to global memory. With one, the consumers wait for the additions. At head_dim 64 with
    // documents, shared memory has no room for two.
    static constexpr int kDQueryStages = kHeadDim == 64 && kDocuments ? 1 : 2;
    // Whether dV is issued before dS is computed, so that tensor cores have work meanwhile. At head_dim 64 the
    // registers do not suffice.
    static constexpr bool kEarlyDValue = kHeadDim == 128;
    // Whether a step's dQ is computed in the next step: faster at head_dim 64, slower at 128.
    static constexpr bool kLateDQuery = kHeadDim == 64;
    // Whether a thread loads positions and rstd of its keys at the start of a key block, where its end would wait for
    // them. At head_dim 128 the registers do not suffice.
    static constexpr bool kEarlyKeyRows = kHeadDim == 64;
    static constexpr int kProducerRegisters = 24;
    static constexpr int kConsumerRegisters = 240;

    static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
    static constexpr int kKeyBytes = kPanels * kKeyPanelBytes;
    static constexpr int kQueryPanelBytes = kQueries * kPanelRowBytes;
    static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;
    static constexpr int kDScoreBytes = kQueries / 64 * kKeyPanelBytes;  // dSᵀ: rows are keys, panels of 64 queries
    static constexpr int kDQueryFloats = kQueries * kHeadDim / kConsumers;  // one consumer's share of dQ
    static constexpr int kDQueryBytes = kConsumers * kDQueryFloats * 4;
    static constexpr int kRowBytes = kQueries * 4;             // one statistic of the rows of a query tile
    static constexpr int kRowStatistics = kDocuments ? 3 : 2;  // lse, delta, start
    // dK and dV are staged for their stores where dS was. At head_dim 128 only dK has room there, and dV lies over V.
    static constexpr bool kStagesOverValues = kHeadDim == 128;
    static constexpr int kBarriers = 3 + 4 * kStages + 2 * kDQueryStages;
    static constexpr int kWorkBytes = 16;
    static constexpr int kSharedBytes = 2 * kKeyBytes +
                                        kStages * (2 * kQueryBytes + kDScoreBytes + kRowStatistics * kRowBytes) +
                                        kDQueryStages * kDQueryBytes + 8 * kBarriers + kWorkBytes;
    static_assert(kSharedBytes <= kMaxSharedBytes,
                  "the tile needs more shared memory than a block has: take fewer stages");
};

inline constexpr int kSumRows = 64;  // a consumer's, which make one partial of dgain or dbias

template <int kHeadDim, bool kDocuments>
struct NormBackwardTile : BackwardTile<kHeadDim, kDocuments> {
    static constexpr bool kNorm = true;
};

template <int kHeadDim, bool kDocuments>
struct BiasBackwardTile : BackwardTile<kHeadDim, kDocuments> {
    static constexpr bool kBias = true;
};

/// The order of key blocks. (sequence, kv head) pairs are taken a section at a time, so that what is read and added to
/// again is still in L2. In a section the longest blocks (first keys) come first. Blocks that add to the same dQ tile
/// follow each other in this order and add in it, so a block waits for earlier ones only. Results do not depend on the
/// size of a section.
struct BackwardOrder {
    int key_blocks = 0;
    int pairs = 0;
    int section = 1;  // pairs in a section
    int regular = 0;  // pairs in sections of this size; the others are the last section

    struct Work {
        int key_block, pair;
    };

    CODA_HD constexpr int count() const { return key_blocks * pairs; }
    CODA_HD constexpr Work at(int index) const {
        const bool last = index >= regular * key_blocks;
        const int first = last ? regular : index / (section * key_blocks) * section;
        const int width = last ? pairs - regular : section;
        const int local = index - first * key_blocks;
        return {local / width, first + local % width};
    }
};

/// The order for `pairs` of (sequence, key/value head), with `group` query heads each.
template <class Tile>
constexpr BackwardOrder backward_order(std::int64_t seq_len, std::int64_t pairs, std::int64_t group) {
    constexpr std::int64_t kMiB = 1 << 20, kSms = kMultiprocessors;
    const std::int64_t key_blocks = ceil_div(seq_len, std::int64_t{Tile::kKeys});
    const std::int64_t pair_bytes = 8 * seq_len * Tile::kHeadDim * group;  // of Q, dO and dQ sums
    const std::int64_t large = 136 * kMiB / pair_bytes, small = 32 * kMiB / pair_bytes;
    // A small section stays in L2 as a whole. Of long sequences it would have less than four pairs. There, blocks walk
    // the same tiles at about the same time, so a section has four pairs, or all of a large one if these are fewer.
    // With less than six blocks per SM, sections are large: SMs that idle at the end cost more than misses in L2.
    // With documents a section has at least eight pairs, or all of a large one. Otherwise the blocks of a document
    // would begin at the same time with the same tile, and each would wait for those before it.
    constexpr std::int64_t kPairs = Tile::kDocuments ? 8 : 4;
    const bool few = pairs * key_blocks < 6 * kSms;
    const std::int64_t most =
        std::max<std::int64_t>(1, few ? large : std::max(small, std::min<std::int64_t>(kPairs, large)));
    const std::int64_t section = ceil_div(pairs, ceil_div(pairs, most));
    // Short blocks of many pairs end the launch: the last section has at least a block for every second SM.
    const std::int64_t last = few ? 1 : std::max<std::int64_t>(1, kSms / key_blocks);
    const std::int64_t regular = std::max<std::int64_t>(0, pairs - last) / section * section;
    return {static_cast<int>(key_blocks), static_cast<int>(pairs), static_cast<int>(section),
            static_cast<int>(regular)};
}

/// Work space: what scratch holds, in this order. Rows are padded to whole tiles of 128 in every sequence.
struct BackwardScratch {
    float* dquery;         // (B, H, tiles, consumers, fragment order): Σ over key blocks of dS K
    float* lse_log2;       // (H, B, padded): lse in units of ln 2; +inf in the padding, where every probability is 0
    float* delta;          // (H, B, padded)
    std::int32_t* start;   // (B, padded): doc_start
    std::int32_t* turns;   // (B, H, tiles): key blocks that have added to a dQ tile
    std::int32_t* ticket;  // next work item
};

}  // namespace coda::hopper
