// The choice of a row's token by a block of threads, by the definition in kernels/math/sampling.h. Device.
//
// The block goes over the row's logits several times; they stay in the L2 cache. Threads add up only integers, so their
// order and number do not show, and the result has the CPU's bits:
//   the largest logit                                    1 pass
//   top-k, top-p: four histograms of 256 bins each       4 passes each, and one for a total
//   how many equal tokens stay and the masses, per warp  1 pass, in which a warp has a range of ids
//   the token                                            1 pass of the warp in whose range it is
//
// A Block has kThreads, the threads 0 to kThreads - 1 of the CTA, kWarps, memory `shared` and sync(), which all of them
// call.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/choice/rows.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/choose_token/op.h"

namespace coda::hopper::choice {

using sampling::Bin;
using sampling::Cut;
using sampling::CutSearch;
using sampling::Rules;

/// What the warps of a block hand to each other.
template <int kWarps>
struct Shared {
    Bin bins[sampling::kBins];
    CutSearch search;
    std::uint64_t best[kWarps];  // the key of the largest logit and, below it, the complement of its id
    int bad[kWarps];             // the lowest id of a logit that is not finite
    std::uint64_t mass[kWarps], ties[kWarps];
    std::uint64_t total;
    // The warp in whose range the token is, where in its masses, and how many of its equal tokens may come.
    int chosen_warp;
    std::uint64_t point, allowed;
};

template <class T>
struct Row {
    const T* logits;
    const std::int32_t* seen;  // may be null
    const Rules& rules;
    int vocab;

    __device__ float raw(int id) const {
        if constexpr (sizeof(T) == 2)
            return __bfloat162float(logits[id]);
        else
            return logits[id];
    }
    __device__ float operator()(int id) const {
        const bool was_seen = seen != nullptr && (static_cast<std::uint32_t>(seen[id / 32]) >> (id % 32) & 1) != 0;
        return sampling::penalised(raw(id), was_seen, rules);
    }
};

/// The largest logit of the row: its key, and below it the complement of the lowest id that has it. `bad` becomes the
/// lowest id of a logit that is not finite, or `vocab` if all are finite.
template <class T, class Block>
__device__ std::uint64_t largest_of(const Row<T>& row, const Block& block, int& bad) {
    std::uint64_t best = 0;
    bad = row.vocab;
    for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += Block::kThreads) {
        if (!isfinite(row.raw(id))) bad = min(bad, id);
        const std::uint64_t own = std::uint64_t{sampling::key_of(row(id))} << 32 | ~static_cast<std::uint32_t>(id);
        best = max(best, own);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        best = max(best, __shfl_xor_sync(kAllLanes, best, lanes));
        bad = min(bad, __shfl_xor_sync(kAllLanes, bad, lanes));
    }
    if (threadIdx.x % 32 == 0) {
        block.shared.best[threadIdx.x / 32] = best;
        block.shared.bad[threadIdx.x / 32] = bad;
    }
    block.sync();
#pragma unroll 1
    for (int warp = 0; warp < Block::kWarps; ++warp) {
        best = max(best, block.shared.best[warp]);
        bad = min(bad, block.shared.bad[warp]);
    }
    return best;
}

/// Adds a warp's tokens to the histogram: equal bins are added up within the warp first.
template <class Block>
__device__ void add_to_bins(const Block& block, bool matches, int bin, std::uint64_t mass) {
    const unsigned active = __ballot_sync(kAllLanes, matches);
    if (!matches) return;
    const unsigned group = __match_any_sync(active, bin);
    // 40 bits in two halves, of which 32 fit a word.
    const std::uint32_t low = __reduce_add_sync(group, static_cast<std::uint32_t>(mass & 0xfffffu));
    const std::uint32_t high = __reduce_add_sync(group, static_cast<std::uint32_t>(mass >> 20));
    if (static_cast<int>(threadIdx.x % 32) != __ffs(static_cast<int>(group)) - 1) return;
    using Word = unsigned long long;
    atomicAdd(reinterpret_cast<Word*>(&block.shared.bins[bin].count), static_cast<Word>(__popc(group)));
    atomicAdd(reinterpret_cast<Word*>(&block.shared.bins[bin].mass),
              static_cast<Word>(low) + (static_cast<Word>(high) << 20));
}

/// The search of kernels/math/sampling.h, for `goal` tokens or masses. All threads have the result.
template <class T, class Block>
__device__ CutSearch search_cut(const Row<T>& row, const Block& block, float largest, float scale, bool by_mass,
                                std::uint64_t goal) {
    CutSearch search;
    const int whole = (row.vocab + 31) / 32 * 32;
    for (int round = 0; round < sampling::kRounds; ++round) {
        for (int i = static_cast<int>(threadIdx.x); i < sampling::kBins; i += Block::kThreads)
            block.shared.bins[i] = {};
        block.sync();
        // Whole warps go around, as their lanes work together.
        for (int id = static_cast<int>(threadIdx.x); id < whole; id += Block::kThreads) {
            const float value = id < row.vocab ? row(id) : largest;
            const std::uint32_t key = sampling::key_of(value);
            add_to_bins(block, id < row.vocab && search.matches(key), search.bin(key),
                        sampling::mass_of(largest - value, scale));
        }
        block.sync();
        if (threadIdx.x == 0) {
            search.narrow(block.shared.bins, by_mass, goal);
            block.shared.search = search;
        }
        block.sync();
        search = block.shared.search;
    }
    return search;
}

template <class T, class Block>
__device__ std::uint64_t total_of(const Row<T>& row, const Block& block, float largest, float scale) {
    std::uint64_t sum = 0;
    for (int id = static_cast<int>(threadIdx.x); id < row.vocab; id += Block::kThreads)
        sum += sampling::mass_of(largest - row(id), scale);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) block.shared.mass[threadIdx.x / 32] = sum;
    block.sync();
    sum = 0;
#pragma unroll 1
    for (int warp = 0; warp < Block::kWarps; ++warp) sum += block.shared.mass[warp];
    block.sync();
    return sum;
}

/// The cut that top-k and top-p leave.
template <class T, class Block>
__device__ Cut cut_of(const Row<T>& row, const Block& block, float largest, const Rules& rules) {
    const bool by_count = rules.top_k != 0 && rules.top_k < static_cast<std::uint64_t>(row.vocab);
    Cut cut;
    std::uint64_t goal = rules.top_k, total = 0;
    if (!by_count && rules.top_p < sampling::kOne) total = total_of(row, block, largest, rules.scale);
        // A loop, so that the search is compiled once.
#pragma unroll 1
    for (const bool by_mass : {false, true}) {
        if (by_mass ? rules.top_p >= sampling::kOne : !by_count) continue;
        if (by_mass) goal = sampling::target_of(total, rules.top_p);
        const CutSearch search = search_cut(row, block, largest, rules.scale, by_mass, goal);
        const std::uint64_t each = sampling::mass_of(largest - sampling::value_of(search.prefix), rules.scale);
        cut = search.cut(by_mass, goal, each);
        total = search.total(cut, each);
    }
    return cut;
}

/// Thread 0: from each warp's equal tokens and masses, the warp in whose range the choice falls.
template <class Block>
__device__ void choose_warp(const Block& block, const Cut& cut, std::uint64_t tie_mass, std::uint64_t draw) {
    const auto allowed_of = [&](int warp, std::uint64_t before) {
        const std::uint64_t left = before < cut.ties ? cut.ties - before : 0;
        return min(left, block.shared.ties[warp]);
    };
    std::uint64_t total = 0, before = 0;
#pragma unroll 1
    for (int warp = 0; warp < Block::kWarps; ++warp) {
        total += block.shared.mass[warp] + allowed_of(warp, before) * tie_mass;
        before += block.shared.ties[warp];
    }
    std::uint64_t point = sampling::point_of(draw, total);
    before = 0;
#pragma unroll 1
    for (int warp = 0; warp < Block::kWarps; ++warp) {
        const std::uint64_t allowed = allowed_of(warp, before);
        const std::uint64_t own = block.shared.mass[warp] + allowed * tie_mass;
        if (point < own) {
            block.shared.chosen_warp = warp;
            block.shared.point = point;
            block.shared.allowed = allowed;
            return;
        }
        point -= own;
        before += block.shared.ties[warp];
    }
}

/// The token, in one lane of one warp; -1 in all other threads.
template <class T, class Block>
__device__ int token_of(const Row<T>& row, const Block& block, float largest, const Rules& rules, std::uint64_t draw) {
    const Cut cut = cut_of(row, block, largest, rules);
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int range = (row.vocab + Block::kThreads - 1) / Block::kThreads * 32;  // of a warp: a multiple of 32
    const int first = warp * range, last = min(first + range, row.vocab);
    // What a token adds: its mass where it stays, whether it is one of the equal ones at the cut or above it.
    const auto kept = [&](float value) {
        const std::uint64_t mass = sampling::mass_of(largest - value, rules.scale);
        return mass >= rules.min_mass ? mass : 0;
    };
    std::uint64_t mass = 0, ties = 0;
    for (int id = first + lane; id < last; id += 32) {
        const float value = row(id);
        const std::uint32_t key = sampling::key_of(value);
        ties += key == cut.key;
        if (key > cut.key) mass += kept(value);
    }
    mass = warp_sum(mass);
    ties = warp_sum(ties);
    if (lane == 0) {
        block.shared.mass[warp] = mass;
        block.shared.ties[warp] = ties;
    }
    block.sync();
    if (threadIdx.x == 0) choose_warp(block, cut, cut.ties == 0 ? 0 : kept(sampling::value_of(cut.key)), draw);
    block.sync();
    if (warp != block.shared.chosen_warp) return -1;

    std::uint64_t point = block.shared.point, allowed = block.shared.allowed;
    for (int begin = first; begin < last; begin += 32) {
        const int id = begin + lane;
        const float value = id < last ? row(id) : 0.0f;
        const std::uint32_t key = sampling::key_of(value);
        const unsigned tied = __ballot_sync(kAllLanes, id < last && key == cut.key);
        const auto earlier = static_cast<std::uint64_t>(__popc(tied & ((1u << lane) - 1)));
        const bool stays = id < last && (key > cut.key || (key == cut.key && earlier < allowed));
        std::uint64_t cumulated = stays ? kept(value) : 0;
#pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {
            const std::uint64_t other = __shfl_up_sync(kAllLanes, cumulated, apart);
            if (lane >= apart) cumulated += other;
        }
        const unsigned beyond = __ballot_sync(kAllLanes, cumulated > point);
        if (beyond != 0) return lane == __ffs(static_cast<int>(beyond)) - 1 ? id : -1;
        point -= __shfl_sync(kAllLanes, cumulated, 31);
        const auto found = static_cast<std::uint64_t>(__popc(tied));
        allowed -= min(allowed, found);
    }
    return -1;
}

/// One thread: the row after its token.
__device__ inline void advance(const ChoiceRows& arguments, std::int64_t s, int token) {
    const std::int32_t length = arguments.lengths[s] + 1;
    auto state = length >= arguments.limits[s] ? RowState::length : RowState::running;
    for (int e = 0; e < arguments.ends; ++e)
        if (arguments.end_tokens[s * arguments.end_ld + e] == token) state = RowState::ended;
    if (arguments.seen != nullptr) {
        std::int32_t& word = arguments.seen[s * arguments.seen_ld + token / 32];
        word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | 1u << (token % 32));
    }
    if (arguments.positions != nullptr) arguments.positions[s] = length - 1;
    arguments.lengths[s] = length;
    arguments.token[s] = token;
    arguments.state[s] = static_cast<std::int32_t>(state);
}

}  // namespace coda::hopper::choice
