// token_groups - the rows of every token, in order: a stable radix sort of (token, row) by one cluster of blocks
//
// Least significant digit first, kBits of the token per pass. Warp w of the cluster holds elements [w n, (w + 1) n) of
// the pass. So digit counts summed in the order of digit, block, warp give each warp's first positions, and lanes with
// the same digit rank themselves by lane. The sort is stable: rows of a token stay ascending. Blocks exchange counts
// through distributed shared memory, and pairs through global memory, which is L2 at these sizes. Device.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/embedding/op.h"

namespace coda::hopper {

/// The most rows of a light group, which one warp adds; each lane holds one row's number. Larger groups are heavy.
inline constexpr int kLightRows = 32;

struct GroupCounters {
    int groups;  // tokens that occur
    int heavy;   // of them, with more than kLightRows rows
};

struct GroupArguments {
    const std::int32_t* tokens;
    int rows;
    int passes;
    GroupCounters* counters;
    int2* pairs[2];  // (rows) each: pass p sorts (token, row) into pairs[p % 2]
    int* starts;     // (groups + 1), over the pairs that the last pass has read: first sorted position of each group
    int* heavy;      // (rows / (kLightRows + 1)), after starts: the heavy groups, in any order
};

namespace token_groups {

constexpr int kBlocks = 8, kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBits = 9, kBins = 1 << kBits;
constexpr int kBatch = 4;
constexpr int kMaxRows = EmbedBackward::kSortedRows;
constexpr int kSharedBytes = kWarps * kBins * static_cast<int>(sizeof(int));
static_assert(kMaxRows / kBlocks / 32 * 8 <= kSharedBytes, "two masks for every 32 rows of a block fit");

/// Exclusive prefix sum over the block's threads.
__device__ inline int exclusive_scan(int value) {
    __shared__ int sums[kWarps];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int sum = value;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const int before = __shfl_up_sync(kAllLanes, sum, apart);
        if (lane >= apart) sum += before;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int others = lane < warp ? sums[lane] : 0;
    others = warp_sum(others);
    __syncthreads();
    return others + sum - value;
}

/// The positions of a warp: a part of its block's positions, in whole batches of 32.
struct Share {
    int lane, warp, block;
    int block_begin, begin, end;

    __device__ explicit Share(int rows) {
        lane = static_cast<int>(threadIdx.x) % 32;
        warp = static_cast<int>(threadIdx.x) / 32;
        block = static_cast<int>(blockIdx.x);
        const int length = (rows + kBlocks * kThreads - 1) / (kBlocks * kThreads) * 32;
        block_begin = block * kWarps * length;
        begin = block_begin + warp * length;
        end = min(begin + length, rows);
    }
};

/// Calls fn(position, load(position), mask of the lanes that have a position) for this warp's positions, one per lane.
/// Loads of kBatch positions are in flight at once.
template <class Load, class Fn>
__device__ void for_each_element(const Share& share, Load&& load, Fn&& fn) {
    for (int first = share.begin; first < share.end; first += 32 * kBatch) {
        decltype(load(0)) batch[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (first + 32 * j + share.lane < share.end) batch[j] = load(first + 32 * j + share.lane);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int left = share.end - first - 32 * j;
            const unsigned active = left >= 32 ? kAllLanes : (1u << max(left, 0)) - 1;
            if (share.lane < left) fn(first + 32 * j + share.lane, batch[j], active);
        }
    }
}

/// The lanes that have this lane's digit. NOTE: match.any takes time for every distinct value; ballots are faster.
__device__ inline unsigned lanes_of_same(unsigned active, int digit) {
    unsigned same = active;
#pragma unroll
    for (int bit = 0; bit < kBits; ++bit) {
        const bool set = (digit >> bit & 1) != 0;
        const unsigned lanes = __ballot_sync(active, set);
        same &= set ? lanes : ~lanes;
    }
    return same;
}

/// One pass. `load(i)` is the (token, row) at position i before the pass.
template <class Load>
__device__ void sort_pass(const GroupArguments& arguments, int pass, int* counts, Load&& load) {
    __shared__ int totals[kBins], bases[kBins];
    const auto cluster = cooperative_groups::this_cluster();
    const Share share(arguments.rows);
    const int thread = static_cast<int>(threadIdx.x), lane = share.lane;
    int* own = counts + share.warp * kBins;
    const auto digit_of = [&](int token) { return token >> (pass * kBits) & (kBins - 1); };

    for (int bin = lane; bin < kBins; bin += 32) own[bin] = 0;
    __syncwarp();
    for_each_element(share, load, [&](int, const int2& pair, unsigned) { atomicAdd(own + digit_of(pair.x), 1); });
    __syncthreads();
    if (thread < kBins) {
        int sum = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
            const int count = counts[warp * kBins + thread];
            counts[warp * kBins + thread] = sum;
            sum += count;
        }
        totals[thread] = sum;
    }
    cluster.sync();
    int below = 0, all = 0;
    if (thread < kBins) {
#pragma unroll
        for (int other = 0; other < kBlocks; ++other) {
            const int total = cluster.map_shared_rank(totals, other)[thread];
            below += other < share.block ? total : 0;
            all += total;
        }
    }
    const int smaller = exclusive_scan(all);
    if (thread < kBins) bases[thread] = smaller + below;
    __syncthreads();
    int2* to = arguments.pairs[pass % 2];
    for_each_element(share, load, [&](int, const int2& pair, unsigned active) {
        const int digit = digit_of(pair.x);
        const unsigned same = lanes_of_same(active, digit);
        const int first = bases[digit] + own[digit];
        __syncwarp(active);
        if (lane == __ffs(static_cast<int>(same)) - 1) own[digit] += __popc(same);
        __syncwarp(active);
        to[first + __popc(same & ((1u << lane) - 1))] = pair;
    });
    cluster.sync();
}

/// Writes starts and heavy from the sorted pairs. `masks` holds two words for every 32 positions of this block: which
/// lanes start a group, and which of these groups are heavy.
__device__ inline void list_groups(const GroupArguments& arguments, const int2* sorted, unsigned* masks) {
    __shared__ int total;
    const auto cluster = cooperative_groups::this_cluster();
    const Share share(arguments.rows);
    const int lane = share.lane, first_mask = (share.begin - share.block_begin) / 16;
    struct Place {
        bool opens, heavy;
    };
    const auto place_of = [&](int i) {
        const int last = arguments.rows - 1, later = i + kLightRows;
        const int before = __ldcg(sorted + max(i - 1, 0)).x, token = __ldcg(sorted + i).x;
        const int behind = __ldcg(sorted + min(later, last)).x;
        const bool opens = i == 0 || before != token;
        return Place{opens, opens && later <= last && behind == token};
    };
    int opened = 0, next = first_mask;  // of the warp
    for_each_element(share, place_of, [&](int, const Place& place, unsigned active) {
        const unsigned opens = __ballot_sync(active, place.opens), heavy = __ballot_sync(active, place.heavy);
        if (lane == 0) masks[next] = opens;
        if (lane == 0) masks[next + 1] = heavy;
        next += 2;
        opened += __popc(opens);
    });
    opened = __shfl_sync(kAllLanes, opened, 0);
    int group = exclusive_scan(lane == 0 ? opened : 0);
    group = __shfl_sync(kAllLanes, group, 0);
    if (threadIdx.x == kThreads - 1) total = group + opened;
    cluster.sync();
    int groups = 0;
#pragma unroll
    for (int other = 0; other < kBlocks; ++other) {
        const int listed = *cluster.map_shared_rank(&total, other);
        group += other < share.block ? listed : 0;
        groups += listed;
    }
    for (int i = share.begin, mask = first_mask; i < share.end; i += 32, mask += 2) {
        const unsigned opens = masks[mask], lower = (1u << lane) - 1;
        const int index = group + __popc(opens & lower);
        if ((opens >> lane & 1) != 0) arguments.starts[index] = i + lane;
        if ((masks[mask + 1] >> lane & 1) != 0) arguments.heavy[atomicAdd(&arguments.counters->heavy, 1)] = index;
        group += __popc(opens);
    }
    if (share.block == 0 && threadIdx.x == 0) {
        arguments.counters->groups = groups;
        arguments.starts[groups] = arguments.rows;
    }
    cluster.sync();  // no block leaves while another reads its total
}

}  // namespace token_groups

/// kBlocks of kThreads, kSharedBytes of dynamic shared memory. (A cluster of 16 blocks is not faster: the time that a
/// block saves is spent on reading the counts of twice as many blocks.)
__global__ __cluster_dims__(token_groups::kBlocks, 1, 1)
    __launch_bounds__(token_groups::kThreads, 1) void group_tokens(const __grid_constant__ GroupArguments arguments) {
    extern __shared__ int counts[];  // (kWarps, kBins); later two masks per 32 positions
    if (blockIdx.x == 0 && threadIdx.x == 0) *arguments.counters = {0, 0};
    token_groups::sort_pass(arguments, 0, counts, [&](int i) { return int2{arguments.tokens[i], i}; });
    for (int pass = 1; pass < arguments.passes; ++pass) {
        const int2* from = arguments.pairs[(pass - 1) % 2];
        token_groups::sort_pass(arguments, pass, counts, [&](int i) { return __ldcg(from + i); });
    }
    token_groups::list_groups(arguments, arguments.pairs[(arguments.passes - 1) % 2],
                              reinterpret_cast<unsigned*>(counts));
}

}  // namespace coda::hopper
