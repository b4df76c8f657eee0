// What the roles of attention_backward share (arguments, shared memory, the block's work), and the roles of warpgroup
// 0: the loader, and the writers that add dQ to global memory in turn. The whole is described in backward.cuh.
//
// NOTE: positions in the work space are counted in 32 bits, in tiles where that is possible, and widened last: the
// roles of warpgroup 0 have 24 registers, which 64-bit counts overflow. launch_backward sees to it that 32 suffice.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/hopper/attention/backward_tile.h"
#include "kernels/hopper/attention/codes.cuh"
#include "kernels/hopper/ptx/bulk.cuh"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/ring.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// What AttentionBackward with rope adds; positions is null without it.
struct RopeBackwardArguments {
    const std::int32_t* positions;  // (M)
    const float2* rope;             // (positions, head_dim / 2): cos, sin
    const float* rstd;              // (M), a factor of the row's gradient; may be null
    float* dot;                     // (H + 2 Hk, M)
    std::int64_t dot_ld;

    __device__ float factor(std::int64_t token) const { return rstd != nullptr ? __ldg(rstd + token) : 1.0f; }
};

/// What AttentionBackward with gain adds.
struct NormBackwardArguments {
    const __nv_bfloat16* pre;  // (M, (H + Hk) hd)
    std::int64_t pre_ld;
    const float* rho;  // (H + Hk, M)
    std::int64_t rho_ld;
    const float2* gain;  // (2, head_dim / 2)
    float* dgain;        // ((H + Hk) head_tiles, head_dim)
    int head_tiles;      // partials of a head
    int tiles;           // and of a sequence of it
    float eps;

    /// The partial of the rows that begin at position `first` of a sequence.
    __device__ std::int64_t partial(int qkv_head, int sequence, int first) const {
        return static_cast<std::int64_t>(qkv_head) * head_tiles + sequence * tiles +
               static_cast<int>(static_cast<unsigned>(first) / kSumRows);
    }
};

/// What AttentionBackward with bias adds.
struct BiasBackwardArguments {
    const float2* bias;  // (Nq / 2)
    float* dbias;        // (tiles of all sequences, Nq)
    std::int64_t dbias_ld;
    int tiles;  // of a sequence

    /// The partials of the rows that begin at position `first` of a sequence.
    __device__ float* partials(int sequence, int first) const {
        return dbias + (static_cast<std::int64_t>(sequence) * tiles +
                        static_cast<int>(static_cast<unsigned>(first) / kSumRows)) *
                           dbias_ld;
    }
};

struct BackwardArguments {
    CUtensorMap key_value, query, dout, dqkv;
    BackwardScratch scratch;
    RopeBackwardArguments rope;
    int seq_len, padded, batch, heads, kv_heads;
    float scale;  // 1 / sqrt(head_dim)
    BackwardOrder order;
};

struct BackwardWithNormArguments : BackwardArguments {
    NormBackwardArguments norm;
};
struct BackwardWithBiasArguments : BackwardArguments {
    BiasBackwardArguments bias;
};
template <class Tile>
using BackwardArgumentsOf =
    AndCodes<Tile, std::conditional_t<Tile::kNorm, BackwardWithNormArguments,
                                      std::conditional_t<Tile::kBias, BackwardWithBiasArguments, BackwardArguments>>>;

template <class Tile>
struct BackwardShared {
    std::uint32_t base;

    __device__ explicit BackwardShared(const void* dynamic) {
        base = ptx::shared_address(dynamic);
        if (base % kSwizzleAtomBytes != 0) __trap();
    }
    __device__ std::uint32_t key() const { return base; }
    __device__ std::uint32_t value() const { return base + Tile::kKeyBytes; }
    __device__ std::uint32_t query(int stage) const { return base + 2 * Tile::kKeyBytes + stage * Tile::kQueryBytes; }
    __device__ std::uint32_t dout(int stage) const { return query(Tile::kStages + stage); }
    __device__ std::uint32_t dscore(int stage) const { return query(2 * Tile::kStages) + stage * Tile::kDScoreBytes; }
    __device__ std::uint32_t dquery(int stage, int consumer) const {
        return dscore(Tile::kStages) + stage * Tile::kDQueryBytes + consumer * Tile::kDQueryFloats * 4;
    }
    __device__ std::uint32_t lse(int stage) const { return dquery(Tile::kDQueryStages, 0) + stage * Tile::kRowBytes; }
    __device__ std::uint32_t delta(int stage) const { return lse(Tile::kStages + stage); }
    __device__ std::uint32_t start(int stage) const { return lse(2 * Tile::kStages + stage); }
    __device__ std::uint32_t key_full() const { return barrier(0); }
    __device__ std::uint32_t query_full(int stage) const { return barrier(1 + stage); }
    __device__ std::uint32_t dout_full(int stage) const { return barrier(1 + Tile::kStages + stage); }
    __device__ std::uint32_t dscore_full(int stage) const { return barrier(1 + 2 * Tile::kStages + stage); }
    __device__ std::uint32_t dscore_empty(int stage) const { return barrier(1 + 3 * Tile::kStages + stage); }
    __device__ std::uint32_t dquery_full(int stage) const { return barrier(1 + 4 * Tile::kStages + stage); }
    __device__ std::uint32_t dquery_empty(int stage) const { return dquery_full(Tile::kDQueryStages + stage); }
    __device__ std::uint32_t item() const { return barrier(Tile::kBarriers); }

  private:
    __device__ std::uint32_t barrier(int index) const { return lse(Tile::kRowStatistics * Tile::kStages) + 8 * index; }
};

/// Named barriers of the block. A stage of Q and dO is empty when every consumer thread has arrived, because the
/// threads read lse and delta themselves. A warp arrives at a named barrier for all of its lanes in one instruction,
/// which racecheck follows. racecheck counts an arrival at an mbarrier for the reads of only one lane, and 32 arrivals
/// per warp would take time in shared memory.
template <class Tile>
struct BackwardNamedBarriers {
    static constexpr int kKeys = 1;                      // consumers: the keys have been read
    static constexpr int kStore = 2;                     // of each consumer: a gradient is in shared memory
    static constexpr int kEmpty = 2 + Tile::kConsumers;  // of each stage: consumers arrive, the loader waits
    static constexpr int kEmptyThreads = kWarpgroupThreads * Tile::kConsumers + 32;
    static_assert(kEmpty + Tile::kStages <= kNamedBarriers, "a block has 16 named barriers");
};

/// The block's work as every role sees it.
struct BackwardWork {
    int sequence, kv_head, group;
    int key_block;
    int first_tile, end_tile;  // query tiles of each head

    __device__ int head(int g) const { return kv_head * group + g; }
};

template <class Tile>
__device__ __forceinline__ BackwardWork backward_work(const BackwardArguments& arguments, int item) {
    const BackwardOrder::Work at = arguments.order.at(item);
    const int sequence = at.pair / arguments.kv_heads;
    const int first = at.key_block * Tile::kKeys / Tile::kQueries;
    int end = (arguments.seq_len + Tile::kQueries - 1) / Tile::kQueries;
    if constexpr (Tile::kDocuments) {
        // Document starts do not decrease: the walk ends at the first tile whose first query's document starts after
        // these keys. A warp looks at 32 tiles at a time, so that it waits for one load in most documents.
        const std::int32_t* starts = arguments.scratch.start + static_cast<std::int64_t>(sequence) * arguments.padded;
        const int lane = static_cast<int>(threadIdx.x % 32);
        for (int tile = first + 1; tile < end; tile += 32) {
            const bool beyond =
                tile + lane < end && starts[(tile + lane) * Tile::kQueries] >= (at.key_block + 1) * Tile::kKeys;
            const unsigned found = __ballot_sync(kAllLanes, beyond);
            if (found != 0) end = tile + __ffs(static_cast<int>(found)) - 1;
        }
    }
    return {sequence, at.pair % arguments.kv_heads, arguments.heads / arguments.kv_heads, at.key_block, first, end};
}

/// For a whole warp, of which one lane issues the copies. The consumers arrive once for the stages that are empty from
/// the start and once after every step: every step waits here, and the last arrivals are waited for at the end.
template <class Tile>
__device__ __forceinline__ void backward_load(const BackwardArguments& arguments, const BackwardShared<Tile>& shared,
                                              const BackwardWork& work) {
    using Barriers = BackwardNamedBarriers<Tile>;
    const int key_column = (arguments.heads + work.kv_head) * Tile::kHeadDim;
    const int value_column = key_column + arguments.kv_heads * Tile::kHeadDim;
    const bool issues = ptx::elect_one();
    if (issues) {
        ptx::mbarrier_arrive_expect(shared.key_full(), 2 * Tile::kKeyBytes);
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel) {
            ptx::tma_load(shared.key() + panel * Tile::kKeyPanelBytes, &arguments.key_value, key_column + 64 * panel,
                          work.key_block * Tile::kKeys, work.sequence, shared.key_full());
            ptx::tma_load(shared.value() + panel * Tile::kKeyPanelBytes, &arguments.key_value,
                          value_column + 64 * panel, work.key_block * Tile::kKeys, work.sequence, shared.key_full());
        }
    }
    __syncwarp();
    Ring<Tile::kStages> ring;
    for (int tile = work.end_tile - 1; tile >= work.first_tile; --tile) {
#pragma unroll 1
        for (int g = 0; g < work.group; ++g) {
            const int stage = ring.index, query = tile * Tile::kQueries, column = work.head(g) * Tile::kHeadDim;
            const int tiles_before =
                (work.head(g) * arguments.batch + work.sequence) * (arguments.padded / Tile::kQueries) + tile;
            const std::int64_t row = std::int64_t{tiles_before} * Tile::kQueries;
            // Wait empty, load Q, lse and starts
            ptx::named_barrier_sync(Barriers::kEmpty + stage, Barriers::kEmptyThreads);
            if (issues) {
                ptx::mbarrier_arrive_expect(shared.query_full(stage),
                                            Tile::kQueryBytes + (Tile::kDocuments ? 2 : 1) * Tile::kRowBytes);
#pragma unroll
                for (int panel = 0; panel < Tile::kPanels; ++panel)
                    ptx::tma_load(shared.query(stage) + panel * Tile::kQueryPanelBytes, &arguments.query,
                                  column + 64 * panel, query, work.sequence, shared.query_full(stage));
                ptx::bulk_load(shared.lse(stage), arguments.scratch.lse_log2 + row, Tile::kRowBytes,
                               shared.query_full(stage));
                if constexpr (Tile::kDocuments)
                    ptx::bulk_load(shared.start(stage),
                                   arguments.scratch.start + work.sequence * arguments.padded + query, Tile::kRowBytes,
                                   shared.query_full(stage));
                // Load dO and delta
                ptx::mbarrier_arrive_expect(shared.dout_full(stage), Tile::kQueryBytes + Tile::kRowBytes);
#pragma unroll
                for (int panel = 0; panel < Tile::kPanels; ++panel)
                    ptx::tma_load(shared.dout(stage) + panel * Tile::kQueryPanelBytes, &arguments.dout,
                                  column + 64 * panel, query, work.sequence, shared.dout_full(stage));
                ptx::bulk_load(shared.delta(stage), arguments.scratch.delta + row, Tile::kRowBytes,
                               shared.dout_full(stage));
            }
            __syncwarp();
            ring.advance();
        }
    }
#pragma unroll
    for (int stage = 0; stage < Tile::kStages; ++stage)
        ptx::named_barrier_sync(Barriers::kEmpty + stage, Barriers::kEmptyThreads);
}

/// Adds the dQ tiles of a stage to global memory, each when all key blocks before this one have added theirs. Every
/// stage has a thread that does this: from waiting for the turn to publishing the next one takes about as long as a
/// step.
template <class Tile>
__device__ __forceinline__ void backward_write(const BackwardArguments& arguments, const BackwardShared<Tile>& shared,
                                               const BackwardWork& work, int stage) {
    const int tiles = arguments.padded / Tile::kQueries;
    const std::int32_t* starts = arguments.scratch.start + work.sequence * arguments.padded;
    const std::uint32_t source = shared.dquery(stage, 0);
    std::uint32_t parity = 0;
    int step = (Tile::kDQueryStages - stage) % Tile::kDQueryStages;  // 0 modulo kDQueryStages is one of this stage
    for (int tile = work.end_tile - 1; tile >= work.first_tile; --tile) {
        const int before = work.key_block - (Tile::kDocuments ? starts[tile * Tile::kQueries] / Tile::kKeys : 0);
#pragma unroll 1
        for (int g = 0; g < work.group; ++g) {
            if (step++ % Tile::kDQueryStages != 0) continue;
            const int at = (work.sequence * arguments.heads + work.head(g)) * tiles + tile;
            float* const destination = arguments.scratch.dquery + std::int64_t{at} * (Tile::kDQueryBytes / 4);
            std::int32_t* const turn = arguments.scratch.turns + at;
            // Wait for this block's turn
            if (before > 0) {  // as early as possible: the turn usually comes while the consumers compute
                while (ptx::load_acquire(turn) < before) __nanosleep(32);
                ptx::fence_async();
            }
            // Wait dQ, store or add it
            ptx::mbarrier_wait(shared.dquery_full(stage), parity);
            if (before == 0) {
                ptx::bulk_store(destination, source, Tile::kDQueryBytes);
            } else {
                ptx::bulk_add(destination, source, Tile::kDQueryBytes);
            }
            ptx::tma_store_commit();
            // Read: release the stage
            ptx::tma_store_wait_read<0>();
            ptx::mbarrier_arrive(shared.dquery_empty(stage));
            parity ^= 1;
            // Written: the next block's turn
            ptx::bulk_wait_done();  // a copy that has completed needs no fence between the proxies
            ptx::store_release(turn, before + 1);
        }
    }
}

}  // namespace coda::hopper
