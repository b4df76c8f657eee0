// attention_forward - causal grouped-query attention with an online softmax
//
//   o = softmax(q kᵀ / sqrt(head_dim)) v per head      (M, H head_dim)
//   lse = ln of the row sums of exp(q kᵀ / sqrt(head_dim))   (H, M)
//
// Roles      warpgroup 0: one thread loads                    (32 or 40 registers)
//                         a warp per consumer stores o's codes, where o has them
//            others: 64 query rows each, GEMMs and softmax    (160 or 232 registers)
// Pipelines  queries with the tile's place, keys, values (a ring each)
//                                                 full: 1 arrive + bytes   empty: 1 arrive per warp that reads
//            turn    named barrier per consumer: the previous consumer has issued its GEMMs, so that consumers take
//                    turns on the tensor cores
// Timeline   per block of keys, from the diagonal down:
//            wait turn, issue S = Q Kᵀ, issue O += P V of the block before, pass the turn on,
//            softmax of S while the others' GEMMs run, rescale O where the maximum has grown
//            at a tile's end the next tile's first S is issued, and O is stored while it runs
//            the loader draws the next tile when it has loaded a tile's queries, ahead of its keys and values
// Shared     Q ring | K ring | V ring | O staging | barriers | ring of places
//
// Persistent: blocks draw tiles of 64 queries per consumer from a counter, in the order of ForwardOrder. A tile's
// result does not depend on the block that computes it.
#pragma once

#include "kernels/hopper/attention/forward_codes.cuh"
#include "kernels/hopper/attention/forward_producer.cuh"
#include "kernels/hopper/attention/fragments.cuh"
#include "kernels/hopper/attention/online_softmax.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/ptx/wgmma_attention.cuh"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/stamps.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

template <class Tile, bool kDocuments>
struct ForwardConsumer {
    static constexpr int kBlocks = Tile::kKeys / 16;      // 16-key steps of P V
    static constexpr int kEarlyBlocks = 3 * kBlocks / 4;  // whose P is rounded while the last exponentials are made
    static constexpr int kTurnBarrier = 1;
    static constexpr int kTurnThreads = 2 * kWarpgroupThreads;  // the one that waits and the one before it

    const ForwardArgumentsOf<Tile>& arguments;
    const ForwardShared<Tile>& shared;
    int consumer, warp, lane;
    Ring<Tile::kQueryStages> queries;
    Ring<Tile::kStages> keys, values;
    float o[Tile::kHeadDim / 2];
    float s[Tile::kKeys / 2];
    std::uint32_t p[kBlocks][4];
    OnlineSoftmax softmax;
    int row[2];    // queries of this thread
    int start[2];  // first key each may see
    Stamps<true> stamps;

    __device__ __forceinline__ ForwardConsumer(const ForwardArgumentsOf<Tile>& given, const ForwardShared<Tile>& memory,
                                               int consumer_, int warp_, int lane_)
        : arguments(given), shared(memory), consumer(consumer_), warp(warp_), lane(lane_) {}

    __device__ __forceinline__ void release(std::uint32_t barrier) const {
        if (lane == 0) ptx::mbarrier_arrive(barrier);
    }
    __device__ __forceinline__ void issue_scores() {
        const std::uint64_t q = k_major_descriptor(shared.query(queries.index) + consumer * 64 * kPanelRowBytes);
        const std::uint64_t k = k_major_descriptor(shared.key(keys.index));
        ptx::pin_registers(s);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < Tile::kHeadDim / 16; ++k16)
            ptx::wgmma_m64k16<0, 0>(s, q + k_major_step(k16, Tile::kQueryPanelBytes),
                                    k + k_major_step(k16, Tile::kKeyPanelBytes), k16 > 0);
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ void issue_values() {
        const std::uint64_t v = mn_major_descriptor(shared.value(values.index), Tile::kKeyPanelBytes);
        ptx::pin_registers(o);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < kBlocks; ++k16) ptx::wgmma_m64k16<1>(o, p[k16], v + mn_major_step(k16), 1);
        ptx::wgmma_commit();
    }

    /// -inf for keys of `block` that a row may not see, of the first kColumns.
    template <int kColumns = Tile::kKeys>
    __device__ __forceinline__ void mask(int block) {
        const int column = block * Tile::kKeys + 2 * (lane % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int last = row[half] - column, first = start[half] - column;
#pragma unroll
            for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * j + i > last || (kDocuments && 8 * j + i < first)) s[4 * j + 2 * half + i] = -INFINITY;
        }
    }

    /// Whether this warpgroup skips a block of the tile: none of its queries sees it. A warpgroup before the sequence
    /// sees no block, and takes the first one, whose keys are all masked.
    __device__ __forceinline__ bool skips(const ForwardWork& work, int block) const {
        return block > 0 && block * Tile::kKeys > last_row(work);
    }
    /// Last row of this warpgroup in a tile.
    __device__ __forceinline__ int last_row(const ForwardWork& work) const { return work.query + 64 * consumer + 63; }
    __device__ __forceinline__ int last_block(const ForwardWork& work) const {
        return work.last_block<Tile>(arguments.seq_len);
    }

    __device__ __forceinline__ bool in_sequence(int query) const {
        return static_cast<unsigned>(query) < static_cast<unsigned>(arguments.seq_len);
    }
    /// The first key that a query may see; of a query outside the sequence, the nearest one's.
    __device__ __forceinline__ int first_key(const ForwardWork& work, int query) const {
        const int inside = max(0, min(query, arguments.seq_len - 1));
        return __ldg(arguments.doc_start + static_cast<std::int64_t>(work.sequence) * arguments.seq_len + inside);
    }

    /// Waits for the next tile: its queries, and its place. Only the lane that later releases them reads the place.
    __device__ __forceinline__ ForwardWork take() const {
        ptx::mbarrier_wait(shared.query_full(queries.index), queries.parity);
        int4 place{};
        if (lane == 0) place = ptx::load_shared_integers(shared.work(queries.index));
        return {__shfl_sync(kAllLanes, place.x, 0), __shfl_sync(kAllLanes, place.y, 0),
                __shfl_sync(kAllLanes, place.z, 0), kDocuments ? __shfl_sync(kAllLanes, place.w, 0) : 0};
    }
    /// Waits for the keys of a tile's first logits: the block with the diagonal. Skips the keys of later blocks, which
    /// none of this warpgroup's queries sees.
    __device__ __forceinline__ void begin(const ForwardWork& work) {
        if constexpr (Tile::kQueries > Tile::kKeys)
            for (int block = last_block(work); skips(work, block); --block) skip_keys();
        ptx::mbarrier_wait(shared.key_full(keys.index), keys.parity);
    }
    __device__ __forceinline__ void skip_keys() {
        ptx::mbarrier_wait(shared.key_full(keys.index), keys.parity);
        release(shared.key_empty(keys.index));
        keys.advance();
    }
    /// Releases the values of a block, which have arrived. This warpgroup still takes its turn and passes it on.
    __device__ __forceinline__ void skip_values() {
        release(shared.value_empty(values.index));
        values.advance();
        ptx::named_barrier_sync(kTurnBarrier + consumer, kTurnThreads);
        ptx::named_barrier_arrive(kTurnBarrier + (consumer + 1) % Tile::kConsumers, kTurnThreads);
    }
    /// Skips the values of a block whose keys `begin` skipped.
    __device__ __forceinline__ void skip() {
        ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
        skip_values();
    }
    /// P of the first kColumns keys of a tile's first block; 0 of the others.
    template <int kColumns>
    __device__ __forceinline__ void first_probabilities(int block) {
        mask<kColumns>(block);
        float factor[2];
        softmax.template update<true, kColumns>(reinterpret_cast<float(&)[kColumns / 2]>(s), arguments.scale * kLog2e,
                                                factor, [] {});
        round_fragments<0, kColumns / 16>(s, p);
#pragma unroll
        for (int k16 = kColumns / 16; k16 < kBlocks; ++k16)
#pragma unroll
            for (std::uint32_t& pair : p[k16]) pair = 0;
    }
    __device__ __forceinline__ void first_step(const ForwardWork& work, int block) {
        ptx::wgmma_wait<0>();
        ptx::pin_registers(s);
        release(shared.key_empty(keys.index));
        keys.advance();
        // Every second warpgroup has its diagonal in the first half of the block, and sees nothing of the second.
        if (block * Tile::kKeys + Tile::kKeys / 2 > last_row(work)) {
            first_probabilities<Tile::kKeys / 2>(block);
        } else {
            first_probabilities<Tile::kKeys>(block);
        }
    }

    /// One block of keys, with the values of the block before it.
    template <bool kMasked>
    __device__ __forceinline__ void step(int block) {
        // Wait keys and turn, issue S = Q Kᵀ
        stamps.mark("step");
        ptx::mbarrier_wait(shared.key_full(keys.index), keys.parity);
        ptx::named_barrier_sync(kTurnBarrier + consumer, kTurnThreads);
        stamps.mark("turn");
        issue_scores();
        // Wait values, issue O += P V
        ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
        issue_values();
        stamps.mark("issued");
        // Pass the turn on
        ptx::named_barrier_arrive(kTurnBarrier + (consumer + 1) % Tile::kConsumers, kTurnThreads);
        // S is done: release keys
        ptx::wgmma_wait<1>();
        ptx::pin_registers(s);
        stamps.mark("S done");
        release(shared.key_empty(keys.index));
        keys.advance();
        // Softmax, while O is computed
        if constexpr (kMasked) mask(block);
        float factor[2];
        const auto o_is_done = [&] {
            // O is done: release values, round most of the next step's P
            // NOTE: ptxas moves this wait up, to before most exponentials. Held back here, it is not faster.
            stamps.mark("most exponentials");
            ptx::wgmma_wait<0>();
            ptx::pin_registers(o);
            stamps.mark("O done");
            release(shared.value_empty(values.index));
            values.advance();
            round_fragments<0, kEarlyBlocks>(s, p);
        };
        const bool rescale =
            softmax.template update<kMasked, 16 * kEarlyBlocks>(s, arguments.scale * kLog2e, factor, o_is_done);
        // The rest of P, O to the new maximum
        round_fragments<kEarlyBlocks, kBlocks>(s, p);
        if (rescale) {
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) o[4 * j + i] *= factor[i / 2];
        }
    }

    __device__ __forceinline__ void store(const ForwardWork& work) {
        // lse, O over the row sums
        const std::uint32_t staging = shared.out(consumer);
        std::uint32_t rounded[Tile::kHeadDim / 16][4];
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(softmax.sum[half]);
            inverse[half] = 1 / sum;
            if (lane % 4 == 0 && in_sequence(row[half]))
                arguments.lse[work.head * arguments.lse_ld +
                              static_cast<std::int64_t>(work.sequence) * arguments.seq_len + row[half]] =
                    softmax.maximum[half] * arguments.scale + logf(sum);
        }
#pragma unroll
        for (int j = 0; j < Tile::kHeadDim / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[4 * j + i] *= inverse[i / 2];
        round_fragments(o, rounded);

        // Stage in shared memory, once the tile before has left it
        const bool issues = warp == 0 && lane == 0;
        if (issues) ptx::tma_store_wait_read<0>();
        ptx::named_barrier_sync(OutBarriers<Tile>::kFree + consumer, OutBarriers<Tile>::kThreads);
        store_fragments(staging, Tile::kOutPanelBytes, 16 * warp, lane, rounded);
        ptx::fence_async_shared();
        ptx::named_barrier_sync(OutBarriers<Tile>::kStaged + consumer, OutBarriers<Tile>::kThreads);
        // TMA store of the warpgroup's rows
        // NOTE: a store whose first coordinate is negative is an illegal instruction, where a load is none.
        if (issues && work.query + 64 * consumer >= 0) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_store(&arguments.out, staging + panel * Tile::kOutPanelBytes,
                               work.head * Tile::kHeadDim + 64 * panel, work.query + 64 * consumer, work.sequence);
            ptx::tma_store_commit();
        }
    }

    /// Computes a tile whose first logits have been issued. Issues the first logits of the next tile, and returns it.
    __device__ __forceinline__ ForwardWork tile(const ForwardWork& work) {
        const int first_row = work.query + 64 * consumer;
        int first_whole = 0;  // the first block that every row of this warpgroup sees to its first key
        int first_seen = 0;   // and the first that one of them sees
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            row[half] = first_row + Fragment::row(warp, lane, half);
            if constexpr (kDocuments) start[half] = first_key(work, row[half]);
        }
        if constexpr (kDocuments) {
            first_whole = (first_key(work, first_row + 63) + Tile::kKeys - 1) / Tile::kKeys;
            first_seen = first_key(work, first_row) / Tile::kKeys;
        }
        softmax.reset();
#pragma unroll
        for (float& value : o) value = 0;

        int block = last_block(work);
        if constexpr (Tile::kQueries > Tile::kKeys)
            for (; skips(work, block); --block) skip();
        first_step(work, block--);
        // Blocks that reach past the first row are masked. Blocks before them are seen whole, back to where a document
        // begins.
        for (; block >= first_seen && (block + 1) * Tile::kKeys > first_row + 1; --block) step<true>(block);
        for (; block >= first_whole; --block) step<false>(block);
        if constexpr (kDocuments)
            for (; block >= first_seen; --block) step<true>(block);
        release(shared.query_empty(queries.index));
        queries.advance();

        ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
        issue_values();
        if constexpr (kDocuments)
            if (block >= work.first_block) {
                // Skip blocks that only earlier warpgroups of the tile see
                ptx::wgmma_wait<0>();
                ptx::pin_registers(o);
#pragma unroll 1
                for (; block >= work.first_block; --block) {
                    skip_keys();
                    skip_values();
                    ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
                }
            }
        // NOTE: after the last tile this multiplies stale shared memory and discards the result. A branch around it
        // would end the overlap.
        const ForwardWork next = take();
        if (!next.ends()) begin(next);
        issue_scores();
        ptx::wgmma_wait<1>();
        ptx::pin_registers(o);
        release(shared.value_empty(values.index));
        values.advance();
        store(work);
        return next;
    }
};

template <class Tile, bool kDocuments>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attention_forward(const __grid_constant__ ForwardArgumentsOf<Tile> arguments) {
    extern __shared__ std::byte dynamic_shared[];
    const ForwardShared<Tile> shared(dynamic_shared);
    // Counted from the first consumer's first warp: in the loop this takes fewer instructions than a count of all.
    const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32 - 4, 0);
    const int lane = static_cast<int>(threadIdx.x) % 32;

    if (threadIdx.x == 0) {
        constexpr int kWarps = 4 * Tile::kConsumers;
        for (int stage = 0; stage < Tile::kQueryStages; ++stage) {
            ptx::mbarrier_init(shared.query_full(stage), 1);
            ptx::mbarrier_init(shared.query_empty(stage), kWarps + (Tile::kRounds ? Tile::kConsumers : 0));
        }
        for (int stage = 0; stage < Tile::kStages; ++stage) {
            ptx::mbarrier_init(shared.key_full(stage), 1);
            ptx::mbarrier_init(shared.key_empty(stage), kWarps);
            ptx::mbarrier_init(shared.value_full(stage), 1);
            ptx::mbarrier_init(shared.value_empty(stage), kWarps);
        }
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(&arguments.query);
        ptx::prefetch_tensor_map(&arguments.key_value);
        ptx::prefetch_tensor_map(&arguments.out);
    }
    __syncthreads();
    ptx::wait_on_dependencies();
    ptx::launch_dependents();

    if (warp < 0) {
        ptx::decrease_registers<Tile::kProducerRegisters>();
        if constexpr (Tile::kRounds)
            if (warp >= -3 && warp + 3 < Tile::kConsumers) forward_store_codes<Tile>(arguments, shared, warp + 3, lane);
        if (warp == -4 && ptx::elect_one()) forward_load<Tile, kDocuments>(arguments, shared);
        __syncwarp();
    } else {
        ptx::increase_registers<Tile::kConsumerRegisters>();
        const int consumer = warp / 4;
        using Consumer = ForwardConsumer<Tile, kDocuments>;
        // Nobody precedes the first consumer's first turn, so the last consumer passes it on here.
        if (consumer == Tile::kConsumers - 1) ptx::named_barrier_arrive(Consumer::kTurnBarrier, Consumer::kTurnThreads);
        Consumer state(arguments, shared, consumer, warp % 4, lane);
        ForwardWork work = state.take();
        state.begin(work);
        state.issue_scores();
        for (;;) {
            const ForwardWork next = state.tile(work);
            if (next.ends()) break;
            work = next;
        }
        ptx::wgmma_wait<0>();
        if (warp % 4 == 0 && lane == 0) ptx::tma_store_wait_read<0>();
    }
}

}  // namespace coda::hopper
