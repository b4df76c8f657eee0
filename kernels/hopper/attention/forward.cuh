// attention_forward - causal grouped-query attention with an online softmax
//
//   o = softmax(q kᵀ / sqrt(head_dim)) v per head      (M, H head_dim)
//   lse = ln of the row sums of exp(q kᵀ / sqrt(head_dim))   (H, M)
//
// Roles      warpgroup 0: one thread loads                    (32 or 40 registers)
//            others: 64 query rows each, products and softmax (160 or 232 registers)
// Pipelines  query   TMA -> consumers   full: 1 arrive + bytes   empty: 1 arrive per consumer warp
//            keys, values (a ring each)  full: 1 arrive + bytes   empty: 1 arrive per consumer warp
//            turn    named barrier per consumer: the one before it has issued its products
// Timeline   per block of keys, from the diagonal down:
//            wait turn, issue S = Q Kᵀ, issue O += P V of the block before, pass the turn on,
//            softmax of S while the others' products run, rescale O
// Shared     Q | K ring | V ring | O staging | barriers
//
// Persistent: a block takes tiles of 64 queries per consumer in the order of ForwardOrder.
#pragma once

#include <cuda.h>

#include "kernels/hopper/attention/forward_tile.h"
#include "kernels/hopper/attention/fragments.cuh"
#include "kernels/hopper/ptx/bulk.cuh"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/ptx/wgmma_attention.cuh"
#include "kernels/hopper/sm90/ring.cuh"

namespace coda::hopper {

struct ForwardArguments {
    CUtensorMap query, key_value, out;
    const std::int32_t* doc_start;  // (M), null without documents
    float* lse;                     // (H, M)
    std::int64_t lse_ld;
    int seq_len, heads, kv_heads;
    float scale;  // 1 / sqrt(head_dim)
    ForwardOrder order;
};

template <class Tile>
struct ForwardShared {
    std::uint32_t base;

    __device__ explicit ForwardShared(const void* dynamic) {
        const std::uint32_t address = ptx::shared_address(dynamic);
        base = (address + kSwizzleAtomBytes - 1) / kSwizzleAtomBytes * kSwizzleAtomBytes;
    }
    __device__ std::uint32_t query() const { return base; }
    __device__ std::uint32_t key(int stage) const { return base + Tile::kQueryBytes + stage * Tile::kKeyBytes; }
    __device__ std::uint32_t value(int stage) const { return key(Tile::kStages + stage); }
    __device__ std::uint32_t out(int consumer) const {
        return key(2 * Tile::kStages) + consumer * Tile::kPanels * Tile::kOutPanelBytes;
    }
    __device__ std::uint32_t query_full() const { return barrier(0); }
    __device__ std::uint32_t query_empty() const { return barrier(1); }
    __device__ std::uint32_t key_full(int stage) const { return barrier(2 + stage); }
    __device__ std::uint32_t key_empty(int stage) const { return barrier(2 + Tile::kStages + stage); }
    __device__ std::uint32_t value_full(int stage) const { return barrier(2 + 2 * Tile::kStages + stage); }
    __device__ std::uint32_t value_empty(int stage) const { return barrier(2 + 3 * Tile::kStages + stage); }

  private:
    __device__ std::uint32_t barrier(int index) const {
        return base + 2 * Tile::kQueryBytes + 2 * Tile::kStages * Tile::kKeyBytes + 8 * index;
    }
};

/// One tile of work as every role sees it.
struct ForwardWork {
    int sequence, head, kv_head;
    int query;                    // first query of the tile
    int first_block, last_block;  // key blocks that some query of the tile may see, both included
};

template <class Tile, bool kDocuments>
__device__ __forceinline__ ForwardWork forward_work(const ForwardArguments& arguments, int index) {
    const ForwardOrder::Work work = arguments.order.at(index);
    const int sequence = work.pair / arguments.kv_heads, kv_head = work.pair % arguments.kv_heads;
    const int query = work.query_tile * Tile::kQueries;
    const int last = min(query + Tile::kQueries, arguments.seq_len) - 1;
    const int start =
        kDocuments ? __ldg(arguments.doc_start + static_cast<std::int64_t>(sequence) * arguments.seq_len + query) : 0;
    return {
        sequence,          kv_head * arguments.order.group + work.head_in_group, kv_head, query, start / Tile::kKeys,
        last / Tile::kKeys};
}

template <class Tile, bool kDocuments>
__device__ __forceinline__ void forward_load(const ForwardArguments& arguments, const ForwardShared<Tile>& shared) {
    Ring<Tile::kStages> ring;
    std::uint32_t query_parity = 1;
    for (int round = 0;; ++round) {
        const int index = ForwardOrder::index(round, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
        if (round * static_cast<int>(gridDim.x) >= arguments.order.count()) break;
        if (index >= arguments.order.count()) continue;
        const ForwardWork work = forward_work<Tile, kDocuments>(arguments, index);
        const int key_column = (arguments.heads + work.kv_head) * Tile::kHeadDim;
        const int value_column = key_column + arguments.kv_heads * Tile::kHeadDim;
        const auto load = [&](std::uint32_t to, std::uint32_t barrier, int column, int block) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_load(to + panel * Tile::kKeyPanelBytes, &arguments.key_value, column + 64 * panel,
                              block * Tile::kKeys, work.sequence, barrier);
        };

        ptx::mbarrier_wait(shared.query_empty(), query_parity);
        query_parity ^= 1;
        ptx::mbarrier_arrive_expect(shared.query_full(), Tile::kQueryBytes);
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel)
            ptx::tma_load(shared.query() + panel * Tile::kQueryPanelBytes, &arguments.query,
                          work.head * Tile::kHeadDim + 64 * panel, work.query, work.sequence, shared.query_full());
#pragma unroll 1
        for (int block = work.last_block; block >= work.first_block; --block) {
            const int stage = ring.index;
            ptx::mbarrier_wait(shared.key_empty(stage), ring.parity ^ 1);
            ptx::mbarrier_arrive_expect(shared.key_full(stage), Tile::kKeyBytes);
            load(shared.key(stage), shared.key_full(stage), key_column, block);
            ptx::mbarrier_wait(shared.value_empty(stage), ring.parity ^ 1);
            ptx::mbarrier_arrive_expect(shared.value_full(stage), Tile::kKeyBytes);
            load(shared.value(stage), shared.value_full(stage), value_column, block);
            ring.advance();
        }
    }
}

/// The running softmax of a thread's two rows.
struct OnlineSoftmax {
    float maximum[2], sum[2];  // of unscaled logits; the sum is over this thread's columns

    __device__ __forceinline__ void reset() {
        maximum[0] = maximum[1] = -INFINITY;
        sum[0] = sum[1] = 0;
    }
    /// Replaces logits by exp(scale (logit - maximum)); `factor` is what earlier results are to be multiplied with.
    template <bool kMasked, int kFloats>
    __device__ __forceinline__ void update(float (&logits)[kFloats], float scale_log2, float (&factor)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = maximum[half];
#pragma unroll
            for (int j = 0; j < kFloats / 4; ++j)
                largest = fmaxf(largest, fmaxf(logits[4 * j + 2 * half], logits[4 * j + 2 * half + 1]));
            largest = quad_max(largest);
            // A row that has seen no key yet: subtracting 0 instead gives exp(-inf) = 0, not NaN.
            const float shift = kMasked && largest == -INFINITY ? 0 : largest * scale_log2;
            factor[half] = exp2_approximate(maximum[half] * scale_log2 - shift);
            maximum[half] = largest;
            float added = 0;
#pragma unroll
            for (int j = 0; j < kFloats / 4; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& logit = logits[4 * j + 2 * half + i];
                    logit = exp2_approximate(logit * scale_log2 - shift);
                    added += logit;
                }
            sum[half] = sum[half] * factor[half] + added;
        }
    }
};

template <class Tile, bool kDocuments>
struct ForwardConsumer {
    static constexpr int kBlocks = Tile::kKeys / 16;  // 16-key steps of P V
    static constexpr int kTurnBarrier = 1, kOutBarrier = 5;

    const ForwardArguments& arguments;
    const ForwardShared<Tile>& shared;
    int consumer, warp, lane;
    Ring<Tile::kStages> keys, values;
    float o[Tile::kHeadDim / 2];
    float s[Tile::kKeys / 2];
    std::uint32_t p[kBlocks][4];
    OnlineSoftmax softmax;
    int row[2];    // queries of this thread
    int start[2];  // first key each may see

    __device__ __forceinline__ ForwardConsumer(const ForwardArguments& given, const ForwardShared<Tile>& memory,
                                               int consumer_, int warp_, int lane_)
        : arguments(given), shared(memory), consumer(consumer_), warp(warp_), lane(lane_) {}

    __device__ __forceinline__ void release(std::uint32_t barrier) const {
        if (lane == 0) ptx::mbarrier_arrive(barrier);
    }
    __device__ __forceinline__ void issue_scores() {
        const std::uint64_t q = operand_descriptor(shared.query() + consumer * 64 * kPanelRowBytes, 16);
        const std::uint64_t k = operand_descriptor(shared.key(keys.index), 16);
        ptx::pin_registers(s);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < Tile::kHeadDim / 16; ++k16)
            ptx::wgmma_m64k16<0, 0>(s, q + k_major_step(k16, Tile::kQueryPanelBytes),
                                    k + k_major_step(k16, Tile::kKeyPanelBytes), k16 > 0);
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ void issue_values() {
        const std::uint64_t v = operand_descriptor(shared.value(values.index), Tile::kKeyPanelBytes);
        ptx::pin_registers(o);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < kBlocks; ++k16) ptx::wgmma_m64k16<1>(o, p[k16], v + mn_major_step(k16), 1);
        ptx::wgmma_commit();
    }

    /// -inf for keys of `block` that a row may not see.
    __device__ __forceinline__ void mask(int block) {
        const int column = block * Tile::kKeys + 2 * (lane % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int last = row[half] - column, first = start[half] - column;
#pragma unroll
            for (int j = 0; j < Tile::kKeys / 8; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * j + i > last || (kDocuments && 8 * j + i < first)) s[4 * j + 2 * half + i] = -INFINITY;
        }
    }

    __device__ __forceinline__ void first_step(int block) {
        ptx::mbarrier_wait(shared.key_full(keys.index), keys.parity);
        issue_scores();
        ptx::wgmma_wait<0>();
        ptx::pin_registers(s);
        release(shared.key_empty(keys.index));
        keys.advance();
        mask(block);
        float factor[2];
        softmax.template update<true>(s, arguments.scale * 1.44269504f, factor);
        round_fragments(s, p);
    }

    /// Passes over a block that none of this warpgroup's queries sees. Its turns keep their number.
    __device__ __forceinline__ void skip() {
        ptx::mbarrier_wait(shared.key_full(keys.index), keys.parity);
        release(shared.key_empty(keys.index));
        keys.advance();
        ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
        release(shared.value_empty(values.index));
        values.advance();
        ptx::named_barrier_sync(kTurnBarrier + consumer, 256);
        ptx::named_barrier_arrive(kTurnBarrier + (consumer + 1) % Tile::kConsumers, 256);
    }

    template <bool kMasked>
    __device__ __forceinline__ void step(int block) {
        ptx::mbarrier_wait(shared.key_full(keys.index), keys.parity);
        ptx::named_barrier_sync(kTurnBarrier + consumer, 256);
        issue_scores();
        ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
        issue_values();
        ptx::named_barrier_arrive(kTurnBarrier + (consumer + 1) % Tile::kConsumers, 256);
        ptx::wgmma_wait<1>();
        ptx::pin_registers(s);
        release(shared.key_empty(keys.index));
        keys.advance();
        if constexpr (kMasked) mask(block);
        float factor[2];
        softmax.template update<kMasked>(s, arguments.scale * 1.44269504f, factor);
        ptx::wgmma_wait<0>();
        ptx::pin_registers(o);
        release(shared.value_empty(values.index));
        values.advance();
        round_fragments(s, p);
#pragma unroll
        for (int j = 0; j < Tile::kHeadDim / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[4 * j + i] *= factor[i / 2];
    }

    __device__ __forceinline__ void store(const ForwardWork& work) {
        const std::uint32_t staging = shared.out(consumer);
        std::uint32_t rounded[Tile::kHeadDim / 16][4];
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(softmax.sum[half]);
            inverse[half] = 1 / sum;
            if (lane % 4 == 0 && row[half] < arguments.seq_len)
                arguments.lse[work.head * arguments.lse_ld +
                              static_cast<std::int64_t>(work.sequence) * arguments.seq_len + row[half]] =
                    softmax.maximum[half] * arguments.scale + logf(sum);
        }
#pragma unroll
        for (int j = 0; j < Tile::kHeadDim / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[4 * j + i] *= inverse[i / 2];
        round_fragments(o, rounded);

        const bool issues = warp == 0 && lane == 0;
        if (issues) ptx::tma_store_wait_read<0>();
        ptx::named_barrier_sync(kOutBarrier + consumer, 128);
        store_fragments(staging, Tile::kOutPanelBytes, 16 * warp, lane, rounded);
        ptx::fence_async_shared();
        ptx::named_barrier_sync(kOutBarrier + consumer, 128);
        if (issues) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_store(&arguments.out, staging + panel * Tile::kOutPanelBytes,
                               work.head * Tile::kHeadDim + 64 * panel, work.query + 64 * consumer, work.sequence);
            ptx::tma_store_commit();
        }
    }

    __device__ __forceinline__ void tile(const ForwardWork& work, std::uint32_t query_parity) {
        const int first_row = work.query + 64 * consumer;
        int latest_start = 0;  // of the rows of this warpgroup
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            row[half] = first_row + Fragment::row(warp, lane, half);
            if constexpr (kDocuments)
                start[half] = __ldg(arguments.doc_start + static_cast<std::int64_t>(work.sequence) * arguments.seq_len +
                                    min(row[half], arguments.seq_len - 1));
        }
        if constexpr (kDocuments)
            latest_start = __ldg(arguments.doc_start + static_cast<std::int64_t>(work.sequence) * arguments.seq_len +
                                 min(first_row + 63, arguments.seq_len - 1));
        softmax.reset();
#pragma unroll
        for (float& value : o) value = 0;

        ptx::mbarrier_wait(shared.query_full(), query_parity);
        int block = work.last_block;
        if constexpr (Tile::kQueries > Tile::kKeys)
            for (; block * Tile::kKeys > first_row + 63; --block) skip();
        first_step(block--);
        // Blocks that reach past the first row are masked, those below are seen whole, down to where a document begins.
        for (; block >= work.first_block && (block + 1) * Tile::kKeys > first_row + 1; --block) step<true>(block);
        for (; block >= work.first_block && block * Tile::kKeys >= latest_start; --block) step<false>(block);
        if constexpr (kDocuments)
            for (; block >= work.first_block; --block) step<true>(block);
        release(shared.query_empty());

        ptx::mbarrier_wait(shared.value_full(values.index), values.parity);
        issue_values();
        ptx::wgmma_wait<0>();
        ptx::pin_registers(o);
        release(shared.value_empty(values.index));
        values.advance();
        store(work);
    }
};

template <class Tile, bool kDocuments>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attention_forward(const __grid_constant__ ForwardArguments arguments) {
    extern __shared__ std::byte dynamic_shared[];
    const ForwardShared<Tile> shared(dynamic_shared);
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = static_cast<int>(threadIdx.x) % 32;

    if (threadIdx.x == 0) {
        constexpr int kWarps = 4 * Tile::kConsumers;
        ptx::mbarrier_init(shared.query_full(), 1);
        ptx::mbarrier_init(shared.query_empty(), kWarps);
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

    if (warp < 4) {
        ptx::give_registers<Tile::kProducerRegisters>();
        if (warp == 0 && ptx::elect_one()) forward_load<Tile, kDocuments>(arguments, shared);
        __syncwarp();
    } else {
        ptx::take_registers<Tile::kConsumerRegisters>();
        const int consumer = warp / 4 - 1;
        using Consumer = ForwardConsumer<Tile, kDocuments>;
        // The first consumer's first turn comes without anyone before it.
        if (consumer == Tile::kConsumers - 1) ptx::named_barrier_arrive(Consumer::kTurnBarrier, 256);
        Consumer state(arguments, shared, consumer, warp % 4, lane);
        std::uint32_t query_parity = 0;
        for (int round = 0; round * static_cast<int>(gridDim.x) < arguments.order.count(); ++round) {
            const int index = ForwardOrder::index(round, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
            if (index >= arguments.order.count()) continue;
            state.tile(forward_work<Tile, kDocuments>(arguments, index), query_parity);
            query_parity ^= 1;
        }
        if (warp % 4 == 0 && lane == 0) ptx::tma_store_wait_read<0>();
    }
}

}  // namespace coda::hopper
