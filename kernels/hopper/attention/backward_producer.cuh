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
#include "kernels/hopper/ptx/shared_vectors.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/ring.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// What AttentionBackward with dot adds, which is null without it.
struct RopeBackwardArguments {
    const std::int32_t* positions;  // (M); null where nothing was rotated
    const float2* rope;             // (positions, head_dim / 2): cos, sin
    const float* rstd;              // (M), a factor of the row's gradient; may be null
    float* dot;                     // (H + 2 Hk, M)
    std::int64_t dot_ld;

    __device__ bool has_dot() const { return dot != nullptr; }
    __device__ bool rotates() const { return positions != nullptr; }
    __device__ float factor(std::int64_t token) const { return rstd != nullptr ? __ldg(rstd + token) : 1.0f; }
};

/// What AttentionBackward with gain adds.
struct NormBackwardArguments {
    CUtensorMap pre;   // (M, (H + Hk) hd): 64 rows
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
    int group;    // heads / kv_heads
    float scale;  // 1 / sqrt(head_dim)
    BackwardOrder order;
};

/// A kernel's arguments with those of a norm of heads, of a bias and of codes, where its tile has them.
template <class Arguments>
struct WithNorm : Arguments {
    NormBackwardArguments norm;
};
template <class Arguments>
struct WithBias : Arguments {
    BiasBackwardArguments bias;
};
template <class Tile, class Arguments>
using WithForm = AndCodes<Tile, std::conditional_t<Tile::kNorm, WithNorm<Arguments>,
                                                   std::conditional_t<Tile::kBias, WithBias<Arguments>, Arguments>>>;
template <class Tile>
using BackwardArgumentsOf = WithForm<Tile, BackwardArguments>;

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
    __device__ std::uint32_t work_full() const { return barrier(0); }
    __device__ std::uint32_t work_empty() const { return barrier(1); }
    __device__ std::uint32_t pre_full() const { return barrier(2); }
    __device__ std::uint32_t query_full(int stage) const { return barrier(3 + stage); }
    __device__ std::uint32_t dout_full(int stage) const { return barrier(3 + Tile::kStages + stage); }
    __device__ std::uint32_t dscore_full(int stage) const { return barrier(3 + 2 * Tile::kStages + stage); }
    __device__ std::uint32_t dscore_empty(int stage) const { return barrier(3 + 3 * Tile::kStages + stage); }
    __device__ std::uint32_t dquery_full(int stage) const { return barrier(3 + 4 * Tile::kStages + stage); }
    __device__ std::uint32_t dquery_empty(int stage) const { return dquery_full(Tile::kDQueryStages + stage); }
    /// Where dK and dV are staged, in panels of kKeyPanelBytes. Each consumer has the rows of its keys, as in dS.
    __device__ std::uint32_t staged_dkey() const { return dscore(Tile::kStagesOverValues ? 0 : 1); }
    __device__ std::uint32_t staged_dvalue() const { return Tile::kStagesOverValues ? value() : dscore(0); }
    /// A consumer's own shared memory for sums of columns, until dK is staged.
    __device__ std::uint32_t columns(int consumer) const {
        return dscore(0) + (Tile::kStagesOverValues ? 0 : Tile::kKeyPanelBytes) + consumer * 64 * kPanelRowBytes;
    }
    __device__ std::uint32_t work() const { return lse(Tile::kRowStatistics * Tile::kStages); }

  private:
    __device__ std::uint32_t barrier(int index) const { return work() + Tile::kWorkBytes + 8 * index; }
};

/// Named barriers of the block. What the loader fills is empty when every consumer thread has arrived: a stage of Q and
/// dO, because the threads read lse and delta themselves, and K and V, which they read for dot. A warp arrives at a
/// named barrier for all of its lanes in one instruction, which racecheck follows. racecheck counts an arrival at an
/// mbarrier for the reads of only one lane, and 32 arrivals per warp would take time in shared memory.
template <class Tile>
struct BackwardNamedBarriers {
    static constexpr int kKeys = 1;                      // consumers: the last dQ is done
    static constexpr int kStore = 2;                     // of each consumer: its threads have come here
    static constexpr int kEmpty = 2 + Tile::kConsumers;  // of each stage: consumers arrive, the loader waits
    static constexpr int kKeyEmpty = kEmpty + Tile::kStages, kValueEmpty = kKeyEmpty + 1;  // likewise
    static constexpr int kEmptyThreads = kWarpgroupThreads * Tile::kConsumers + 32;
    static_assert(kValueEmpty < kNamedBarriers, "a block has 16 named barriers");
};

/// A key block's place, which the loader hands to the other roles.
struct BackwardWork {
    int sequence;  // negative: there are no more key blocks
    int kv_head;
    int key_block;
    int end_tile;  // query tiles of each head: from first_tile() to this one

    __device__ __forceinline__ bool ends() const { return sequence < 0; }
    template <class Tile>
    __device__ __forceinline__ int first_tile() const {
        return key_block * Tile::kKeys / Tile::kQueries;
    }
};

template <class Tile>
__device__ __forceinline__ BackwardWork backward_work(const BackwardArguments& arguments, int item) {
    if (item >= arguments.order.count()) return {-1, 0, 0, 0};
    const BackwardOrder::Work at = arguments.order.at(item);
    const int sequence = at.pair / arguments.kv_heads;
    int end = (arguments.seq_len + Tile::kQueries - 1) / Tile::kQueries;
    if constexpr (Tile::kDocuments) {
        // Document starts do not decrease: the walk ends at the first tile whose first query's document starts after
        // these keys. A warp looks at 32 tiles at a time, so that it waits for one load in most documents.
        const std::int32_t* starts = arguments.scratch.start + static_cast<std::int64_t>(sequence) * arguments.padded;
        const int lane = static_cast<int>(threadIdx.x % 32);
        for (int tile = at.key_block * Tile::kKeys / Tile::kQueries + 1; tile < end; tile += 32) {
            const bool beyond =
                tile + lane < end && starts[(tile + lane) * Tile::kQueries] >= (at.key_block + 1) * Tile::kKeys;
            const unsigned found = __ballot_sync(kAllLanes, beyond);
            if (found != 0) end = tile + __ffs(static_cast<int>(found)) - 1;
        }
    }
    return {sequence, at.pair % arguments.kv_heads, at.key_block, end};
}

/// The place that was handed over last.
template <class Tile>
__device__ __forceinline__ BackwardWork work_in_shared(const BackwardShared<Tile>& shared) {
    const int4 place = ptx::load_shared_integers(shared.work());
    return {place.x, place.y, place.z, place.w};
}
/// Waits for the next key block's place.
template <class Tile>
__device__ __forceinline__ BackwardWork wait_for_work(const BackwardShared<Tile>& shared, std::uint32_t& parity) {
    ptx::mbarrier_wait(shared.work_full(), parity);
    parity ^= 1;
    return work_in_shared<Tile>(shared);
}

/// Loads key block after key block, and the query tiles that see each. Keys are waited for with the first queries, and
/// values with the first dO. For a whole warp, of which one lane issues the copies. The consumers arrive once for what
/// is empty from the start and once after every use: every use waits here, and the last arrivals are waited for at the
/// end.
template <class Tile>
__device__ __forceinline__ void backward_load(const BackwardArgumentsOf<Tile>& arguments,
                                              const BackwardShared<Tile>& shared) {
    using Barriers = BackwardNamedBarriers<Tile>;
    const bool issues = ptx::elect_one();
    Ring<Tile::kStages> ring;
    std::uint32_t parity = 1;
    for (;;) {
        // Draw the next key block
        // NOTE: by ticket, so that a CTA only waits for the turns of key blocks that were drawn before its own.
        int item = 0;
        if (threadIdx.x == 0) item = atomicAdd(arguments.scratch.ticket, 1);
        const BackwardWork work = backward_work<Tile>(arguments, __shfl_sync(kAllLanes, item, 0));
        // Bring its keys and values into L2, while the consumers compute the key block before
        if (issues && !work.ends())
#pragma unroll
            for (int panel = 0; panel < 2 * Tile::kPanels; ++panel)
                ptx::tma_prefetch(
                    &arguments.key_value,
                    (arguments.heads + panel / Tile::kPanels * arguments.kv_heads + work.kv_head) * Tile::kHeadDim +
                        64 * (panel % Tile::kPanels),
                    work.key_block * Tile::kKeys, work.sequence);
        // Wait for room for its keys, hand its place over
        ptx::named_barrier_sync(Barriers::kKeyEmpty, Barriers::kEmptyThreads);
        ptx::mbarrier_wait(shared.work_empty(), parity);
        parity ^= 1;
        if (issues) {
            ptx::store_shared_integers(shared.work(), {work.sequence, work.kv_head, work.key_block, work.end_tile});
            ptx::mbarrier_arrive(shared.work_full());
        }
        __syncwarp();
        if (work.ends()) break;
        bool first = true;
        for (int tile = work.end_tile - 1; tile >= work.first_tile<Tile>(); --tile) {
#pragma unroll 1
            for (int g = 0; g < arguments.group; ++g) {
                const int stage = ring.index, query = tile * Tile::kQueries, head = work.kv_head * arguments.group + g;
                const int tiles_before =
                    (head * arguments.batch + work.sequence) * (arguments.padded / Tile::kQueries) + tile;
                const std::int64_t row = std::int64_t{tiles_before} * Tile::kQueries;
                const auto load = [&](std::uint32_t to, const CUtensorMap& map, int panel_bytes, int column, int row_at,
                                      std::uint32_t barrier) {
#pragma unroll
                    for (int panel = 0; panel < Tile::kPanels; ++panel)
                        ptx::tma_load(to + panel * panel_bytes, &map, column * Tile::kHeadDim + 64 * panel, row_at,
                                      work.sequence, barrier);
                };
                // Wait empty, load K, Q, lse and starts
                ptx::named_barrier_sync(Barriers::kEmpty + stage, Barriers::kEmptyThreads);
                if (issues) {
                    ptx::mbarrier_arrive_expect(shared.query_full(stage),
                                                Tile::kQueryBytes + (Tile::kDocuments ? 2 : 1) * Tile::kRowBytes +
                                                    (first ? Tile::kKeyBytes : 0));
                    if (first)
                        load(shared.key(), arguments.key_value, Tile::kKeyPanelBytes, arguments.heads + work.kv_head,
                             work.key_block * Tile::kKeys, shared.query_full(stage));
                    load(shared.query(stage), arguments.query, Tile::kQueryPanelBytes, head, query,
                         shared.query_full(stage));
                    ptx::bulk_load(shared.lse(stage), arguments.scratch.lse_log2 + row, Tile::kRowBytes,
                                   shared.query_full(stage));
                    if constexpr (Tile::kDocuments)
                        ptx::bulk_load(shared.start(stage),
                                       arguments.scratch.start + work.sequence * arguments.padded + query,
                                       Tile::kRowBytes, shared.query_full(stage));
                }
                __syncwarp();
                // Wait for room for V, load it, dO and delta
                if (first) ptx::named_barrier_sync(Barriers::kValueEmpty, Barriers::kEmptyThreads);
                if (issues) {
                    ptx::mbarrier_arrive_expect(shared.dout_full(stage),
                                                Tile::kQueryBytes + Tile::kRowBytes + (first ? Tile::kKeyBytes : 0));
                    if (first)
                        load(shared.value(), arguments.key_value, Tile::kKeyPanelBytes,
                             arguments.heads + arguments.kv_heads + work.kv_head, work.key_block * Tile::kKeys,
                             shared.dout_full(stage));
                    load(shared.dout(stage), arguments.dout, Tile::kQueryPanelBytes, head, query,
                         shared.dout_full(stage));
                    ptx::bulk_load(shared.delta(stage), arguments.scratch.delta + row, Tile::kRowBytes,
                                   shared.dout_full(stage));
                }
                __syncwarp();
                first = false;
                ring.advance();
            }
        }
    }
#pragma unroll
    for (int stage = 0; stage < Tile::kStages; ++stage)
        ptx::named_barrier_sync(Barriers::kEmpty + stage, Barriers::kEmptyThreads);
    ptx::named_barrier_sync(Barriers::kValueEmpty, Barriers::kEmptyThreads);
}

/// Adds the dQ tiles of a stage to global memory, each when all key blocks before its own have added theirs. Every
/// stage has a thread that does this: from waiting for the turn to publishing the next one takes about as long as a
/// step.
template <class Tile>
__device__ __forceinline__ void backward_write(const BackwardArgumentsOf<Tile>& arguments,
                                               const BackwardShared<Tile>& shared) {
    const auto stage = [] { return ptx::thread_index() / 32 - 1; };
    std::uint32_t key_parity = 0, steps = 0;
    for (;;) {
        const BackwardWork work = wait_for_work<Tile>(shared, key_parity);
        ptx::mbarrier_arrive(shared.work_empty());
        if (work.ends()) return;
        const int first_head = work.sequence * arguments.heads + work.kv_head * arguments.group;
        const int first_row = work.sequence * arguments.padded;
        for (int tile = work.end_tile - 1; tile >= work.first_tile<Tile>(); --tile) {
            const int before =
                work.key_block -
                (Tile::kDocuments ? arguments.scratch.start[first_row + tile * Tile::kQueries] / Tile::kKeys : 0);
#pragma unroll 1
            for (int g = 0; g < arguments.group; ++g) {
                const std::uint32_t step = steps++;
                if (step % Tile::kDQueryStages != static_cast<unsigned>(stage())) continue;
                const int at = (first_head + g) * (arguments.padded / Tile::kQueries) + tile;
                float* const destination = arguments.scratch.dquery + std::int64_t{at} * (Tile::kDQueryBytes / 4);
                std::int32_t* const turn = arguments.scratch.turns + at;
                // Wait for the key block's turn
                if (before > 0) {  // as early as possible: the turn usually comes while the consumers compute
                    while (ptx::load_acquire(turn) < before) __nanosleep(32);
                    ptx::fence_async();
                }
                // Wait dQ, store or add it
                ptx::mbarrier_wait(shared.dquery_full(stage()), step / Tile::kDQueryStages % 2);
                if (before == 0) {
                    ptx::bulk_store(destination, shared.dquery(stage(), 0), Tile::kDQueryBytes);
                } else {
                    ptx::bulk_add(destination, shared.dquery(stage(), 0), Tile::kDQueryBytes);
                }
                ptx::tma_store_commit();
                // Read: release the stage
                ptx::tma_store_wait_read<0>();
                ptx::mbarrier_arrive(shared.dquery_empty(stage()));
                // Written: the next key block's turn
                ptx::bulk_wait_done();  // a copy that has completed needs no fence between the proxies
                ptx::store_release(turn, before + 1);
            }
        }
    }
}

}  // namespace coda::hopper
