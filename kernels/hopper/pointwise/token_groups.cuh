// token_groups - the rows of every token, in order: a stable radix sort of (token, row) by one cluster of blocks
//
// Least significant digit first, kBits of the token a pass. Warp w of the cluster holds elements [w n, (w + 1) n) of
// the pass, so digit counts summed in the order of digit, block, warp are each warp's first positions, and lanes of one
// digit rank themselves by their lane: the sort is stable, so rows of a token stay ascending. Counts pass between
// blocks through distributed shared memory, pairs through global memory, which is L2 at these sizes. Device.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace coda::hopper {

/// Rows of a group that one warp adds, a lane holding the number of each; groups of more are listed as heavy.
inline constexpr int kLightRows = 32;

struct GroupCounters {
    int groups;  // tokens that occur
    int heavy;   // of them, with more than kLightRows rows
    int ticket;  // 0, for the kernel that follows
};

struct GroupArguments {
    const std::int32_t* tokens;
    int rows;
    int passes;
    GroupCounters* counters;
    int2* pairs[2];  // (rows) each: pass p sorts (token, row) into pairs[p % 2]
    int* starts;     // (groups + 1), over the pairs that the last pass has read: first sorted position of each group
    int* heavy;      // (rows / (kLightRows + 1)), behind starts: the heavy groups, in any order
};

namespace token_groups {

constexpr int kBlocks = 8, kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBits = 9, kBins = 1 << kBits;
constexpr int kBatch = 4;
constexpr int kSharedBytes = kWarps * kBins * static_cast<int>(sizeof(int));
constexpr unsigned kAllLanes = 0xffffffffu;

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
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) others += __shfl_xor_sync(kAllLanes, others, apart);
    __syncthreads();
    return others + sum - value;
}

/// Elements of this warp, a lane each: fn(position, load(position), mask of the lanes that have one). Loads of kBatch
/// positions are under way at once.
template <class Load, class Fn>
__device__ void for_each_element(int rows, int block, Load&& load, Fn&& fn) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int share = (rows + kBlocks * kThreads - 1) / (kBlocks * kThreads) * 32;
    const int begin = (block * kWarps + warp) * share, end = min(begin + share, rows);
    for (int first = begin; first < end; first += 32 * kBatch) {
        decltype(load(0)) batch[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (first + 32 * j + lane < end) batch[j] = load(first + 32 * j + lane);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int left = end - first - 32 * j;
            const unsigned active = left >= 32 ? kAllLanes : (1u << max(left, 0)) - 1;
            if (lane < left) fn(first + 32 * j + lane, batch[j], active);
        }
    }
}

/// One pass: `load(i)` is the (token, row) at position i before it.
template <class Load>
__device__ void sort_pass(const GroupArguments& arguments, int pass, int* counts, Load&& load) {
    namespace cg = cooperative_groups;
    __shared__ int totals[kBins], bases[kBins];
    const cg::cluster_group cluster = cg::this_cluster();
    const int block = static_cast<int>(cluster.block_rank()), thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    int* own = counts + thread / 32 * kBins;
    const auto digit_of = [&](int token) { return token >> (pass * kBits) & (kBins - 1); };

    for (int bin = lane; bin < kBins; bin += 32) own[bin] = 0;
    __syncwarp();
    for_each_element(arguments.rows, block, load, [&](int, const int2& pair, unsigned active) {
        const int digit = digit_of(pair.x);
        const unsigned same = __match_any_sync(active, digit);
        if (lane == __ffs(static_cast<int>(same)) - 1) own[digit] += __popc(same);
        __syncwarp(active);
    });
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
            below += other < block ? total : 0;
            all += total;
        }
    }
    const int smaller = exclusive_scan(all);
    if (thread < kBins) bases[thread] = smaller + below;
    __syncthreads();
    int2* to = arguments.pairs[pass % 2];
    for_each_element(arguments.rows, block, load, [&](int, const int2& pair, unsigned active) {
        const int digit = digit_of(pair.x);
        const unsigned same = __match_any_sync(active, digit);
        const int first = bases[digit] + own[digit];
        __syncwarp(active);
        if (lane == __ffs(static_cast<int>(same)) - 1) own[digit] += __popc(same);
        __syncwarp(active);
        to[first + __popc(same & ((1u << lane) - 1))] = pair;
    });
    cluster.sync();
}

/// Writes starts and heavy from the sorted pairs.
__device__ inline void list_groups(const GroupArguments& arguments, const int2* sorted) {
    namespace cg = cooperative_groups;
    __shared__ int total;
    const cg::cluster_group cluster = cg::this_cluster();
    const int block = static_cast<int>(cluster.block_rank()), lane = static_cast<int>(threadIdx.x) % 32;
    const auto opens = [&](int i) { return i == 0 || __ldcg(sorted + i - 1).x != __ldcg(sorted + i).x; };
    int opened = 0;  // of the warp
    for_each_element(arguments.rows, block, opens,
                     [&](int, bool open, unsigned active) { opened += __popc(__ballot_sync(active, open)); });
    opened = __shfl_sync(kAllLanes, opened, 0);
    int group = exclusive_scan(lane == 0 ? opened : 0);
    group = __shfl_sync(kAllLanes, group, 0);
    if (threadIdx.x == kThreads - 1) total = group + opened;
    cluster.sync();
    int groups = 0;
#pragma unroll
    for (int other = 0; other < kBlocks; ++other) {
        const int listed = *cluster.map_shared_rank(&total, other);
        group += other < block ? listed : 0;
        groups += listed;
    }
    for_each_element(arguments.rows, block, opens, [&](int i, bool open, unsigned active) {
        const unsigned all = __ballot_sync(active, open);
        if (open) {
            const int index = group + __popc(all & ((1u << lane) - 1));
            arguments.starts[index] = i;
            const int behind = i + kLightRows;
            if (behind < arguments.rows && __ldcg(sorted + behind).x == __ldcg(sorted + i).x)
                arguments.heavy[atomicAdd(&arguments.counters->heavy, 1)] = index;
        }
        group += __popc(all);
    });
    if (block == 0 && threadIdx.x == 0) {
        arguments.counters->groups = groups;
        arguments.starts[groups] = arguments.rows;
    }
    cluster.sync();  // no block leaves while another reads its total
}

}  // namespace token_groups

__global__ __cluster_dims__(token_groups::kBlocks, 1, 1)
    __launch_bounds__(token_groups::kThreads, 1) void group_tokens(const __grid_constant__ GroupArguments arguments) {
    extern __shared__ int counts[];  // (kWarps, kBins)
    if (blockIdx.x == 0 && threadIdx.x == 0) *arguments.counters = {0, 0, 0};
    token_groups::sort_pass(arguments, 0, counts, [&](int i) { return int2{arguments.tokens[i], i}; });
    for (int pass = 1; pass < arguments.passes; ++pass) {
        const int2* from = arguments.pairs[(pass - 1) % 2];
        token_groups::sort_pass(arguments, pass, counts, [&](int i) { return __ldcg(from + i); });
    }
    token_groups::list_groups(arguments, arguments.pairs[(arguments.passes - 1) % 2]);
}

}  // namespace coda::hopper
