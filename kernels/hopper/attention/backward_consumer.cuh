// A consumer warpgroup of attention_backward: 64 keys with their values, and the gradients of both in registers. The
// whole is described in backward.cuh.
#pragma once

#include "kernels/hopper/attention/backward_keys.cuh"
#include "kernels/hopper/attention/backward_producer.cuh"
#include "kernels/hopper/attention/fragments.cuh"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/math.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared_vectors.cuh"
#include "kernels/hopper/ptx/wgmma_attention.cuh"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/stamps.cuh"

namespace coda::hopper {

template <class Tile>
struct BackwardConsumer : BackwardKeys<Tile> {
    static constexpr int kSteps = Tile::kQueries / 16;  // 16-query steps of dV and dK
    using Barriers = BackwardNamedBarriers<Tile>;
    using Keys = BackwardKeys<Tile>;
    using Keys::arguments, Keys::shared, Keys::work, Keys::consumer, Keys::warp, Keys::lane;
    using Keys::key, Keys::release;

    float dk[Tile::kHeadDim / 2], dv[Tile::kHeadDim / 2];
    // From one step to the next:
    float s[Tile::kQueries / 2];   // logits of the next step, issued a step ahead; P inside a step
    Ring<Tile::kStages> ring;      // its stage of Q and dO
    Ring<Tile::kStages> previous;  // the stage of the step before, whose dQ may be late
    bool has_previous = false;
    Stamps<Tile::kHeadDim == 128> stamps;

    __device__ __forceinline__ BackwardConsumer(const BackwardArgumentsOf<Tile>& given,
                                                const BackwardShared<Tile>& memory, int consumer_, int warp_, int lane_)
        : Keys{given, memory, {}, consumer_, warp_, lane_} {}

    /// Bytes of this lane's first query in a block of 8 row statistics.
    __device__ __forceinline__ std::uint32_t lane_column() const { return 8 * (lane % 4); }
    /// Hands a stage of Q and dO back to the loader.
    __device__ __forceinline__ void release_stage(int stage) const {
        static_assert(Tile::kStages == 2, "a stage is the first or the second");
        ptx::named_barrier_arrive_either<Barriers::kEmpty, Barriers::kEmptyThreads>(stage);
    }

    /// d = this warpgroup's 64 rows of `rows` times the query tile at `tile`, transposed: (keys, queries).
    template <int kFloats>
    __device__ __forceinline__ void issue_transposed(float (&d)[kFloats], std::uint32_t rows, std::uint32_t tile) {
        const std::uint64_t a = k_major_descriptor(rows + consumer * 64 * kPanelRowBytes);
        const std::uint64_t b = k_major_descriptor(tile);
        ptx::pin_registers(d);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < Tile::kHeadDim / 16; ++k16)
            ptx::wgmma_m64k16<0, 0>(d, a + k_major_step(k16, Tile::kKeyPanelBytes),
                                    b + k_major_step(k16, Tile::kQueryPanelBytes), k16 > 0);
        ptx::wgmma_commit();
    }
    /// d += fragments (keys, queries) times the query tile at `tile`.
    template <int kFloats>
    __device__ __forceinline__ void issue_sum(float (&d)[kFloats], const std::uint32_t (&fragments)[kSteps][4],
                                              std::uint32_t tile) {
        const std::uint64_t b = mn_major_descriptor(tile, Tile::kQueryPanelBytes);
        ptx::pin_registers(d);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < kSteps; ++k16) ptx::wgmma_m64k16<1>(d, fragments[k16], b + mn_major_step(k16), 1);
        ptx::wgmma_commit();
    }
    /// This consumer's share of dQ = dS K: at head_dim 64 its 64 queries, at 128 its 64 columns.
    __device__ __forceinline__ void issue_dquery(float (&d)[32], int stage) {
        constexpr bool kSplitQueries = Tile::kHeadDim == 64;
        const std::uint64_t a = mn_major_descriptor(
            shared.dscore(stage) + (kSplitQueries ? consumer * Tile::kKeyPanelBytes : 0), Tile::kKeyPanelBytes);
        const std::uint64_t b = mn_major_descriptor(
            shared.key() + (kSplitQueries ? 0 : consumer * Tile::kKeyPanelBytes), Tile::kKeyPanelBytes);
        ptx::pin_registers(d);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < Tile::kKeys / 16; ++k16)
            ptx::wgmma_m64k16<1, 1>(d, a + mn_major_step(k16), b + mn_major_step(k16), k16 > 0);
        ptx::wgmma_commit();
    }

    /// Hands this consumer's share of the dQ tile of the step at `position` to the writer.
    __device__ __forceinline__ void pass_dquery(const float (&dq)[32], const Ring<Tile::kStages>& position) {
        static_assert(Tile::kStages == 2 && Tile::kDQueryStages <= 2, "positions tell the parity of one or two stages");
        constexpr bool kOne = Tile::kDQueryStages == 1;
        const int stage = kOne ? 0 : position.index;
        const std::uint32_t parity = kOne ? static_cast<std::uint32_t>(position.index) : position.parity;
        const auto thread = static_cast<std::uint32_t>(ptx::thread_index());
        ptx::mbarrier_wait(shared.dquery_empty(stage), parity ^ 1);
        const std::uint32_t to = shared.dquery(stage, consumer) + thread % kWarpgroupThreads * 16;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            ptx::store_shared_quad(to + i * kWarpgroupThreads * 16, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2],
                                   dq[4 * i + 3]);
        ptx::fence_async_shared();
        __syncwarp();
        release(shared.dquery_full(stage));
    }

    /// P in place of the logits: exp2(scale_log2 s - lse), 0 where a query does not see the key.
    __device__ __forceinline__ void probabilities(int tile, int stage) {
        const float scale_log2 = arguments.scale * kLog2e;
        const std::uint32_t column = lane_column();
        int last_start = 0;  // the first key that the tile's last query sees
        if constexpr (Tile::kDocuments)
            last_start = static_cast<int>(ptx::load_shared(shared.start(stage) + Tile::kRowBytes - 4));
#pragma unroll
        for (int j = 0; j < Tile::kQueries / 8; ++j) {
            // Exponentials
            const float2 lse = ptx::load_shared_pair(shared.lse(stage) + column + 32 * j);
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& p = s[4 * j + 2 * half + i];
                    p = exp2_approximate(p * scale_log2 - (i == 0 ? lse.x : lse.y));
                }
        }
        // Keys of earlier documents, of tiles whose last query does not see all of the warpgroup's keys
        if (Tile::kDocuments && last_start > work.key_block * Tile::kKeys + 64 * consumer) {
#pragma unroll
            for (int j = 0; j < Tile::kQueries / 8; ++j) {
                const float2 start = ptx::load_shared_pair(shared.start(stage) + column + 32 * j);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    if (key(half) < __float_as_int(start.x)) s[4 * j + 2 * half] = 0;
                    if (key(half) < __float_as_int(start.y)) s[4 * j + 2 * half + 1] = 0;
                }
            }
        }
        // Causal mask, of tiles that begin before the last key
        if (tile * Tile::kQueries < (work.key_block + 1) * Tile::kKeys) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Queries of the tile before this one do not see the thread's keys.
                const int hidden = key(half) - tile * Tile::kQueries - 2 * (lane % 4);
#pragma unroll
                for (int j = 0; j < Tile::kQueries / 8; ++j)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        if (8 * j + i < hidden) s[4 * j + 2 * half + i] = 0;
            }
        }
    }

    /// dS in place of dP: P (dP - delta).
    __device__ __forceinline__ void score_gradients(float (&dp)[Tile::kQueries / 2], int stage) {
        const std::uint32_t column = lane_column();
#pragma unroll
        for (int j = 0; j < Tile::kQueries / 8; ++j) {
            const float2 delta = ptx::load_shared_pair(shared.delta(stage) + column + 32 * j);
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int at = 4 * j + 2 * half + i;
                    dp[at] = s[at] * (dp[at] - (i == 0 ? delta.x : delta.y));
                }
        }
    }

    /// Hands this consumer's rows of dS to both consumers, for dQ. The stage was last read two steps ago, for dQ. Where
    /// dQ is not late, that is over: this consumer has seen the other's dS of the last step, and the other stored it
    /// after its dQ of the step before.
    __device__ __forceinline__ void pass_dscore(const std::uint32_t (&ds16)[kSteps][4], int stage) {
        if constexpr (Tile::kLateDQuery) ptx::mbarrier_wait(shared.dscore_empty(stage), ring.parity ^ 1);
        store_fragments(shared.dscore(stage), Tile::kKeyPanelBytes, 64 * consumer + 16 * warp, lane, ds16);
        ptx::fence_async_shared();
        __syncwarp();
        release(shared.dscore_full(stage));
    }

    /// The GEMMs that dS allows, and S of the next step; releases the step's stages of Q and dO.
    __device__ __forceinline__ void issue_gradients(const std::uint32_t (&ds16)[kSteps][4], int stage, bool last) {
        // dK += dSᵀ Q
        issue_sum(dk, ds16, shared.query(stage));
        // dQ = dS K, of both consumers' dS: after dK, so that the other consumer has time
        // NOTE: where dQ is late, the first step multiplies stale shared memory and discards the result. A branch
        // around it would cost more.
        float dq[32];
        const Ring<Tile::kStages> source = Tile::kLateDQuery ? previous : ring;
        const bool wanted = !Tile::kLateDQuery || has_previous;
        stamps.mark("dK issued");
        if (wanted) ptx::mbarrier_wait(shared.dscore_full(source.index), source.parity);
        stamps.mark("other dS");
        issue_dquery(dq, source.index);
        // dV and dK are done: release dO and Q
        ptx::wgmma_wait<1>();
        ptx::pin_registers(dv);
        ptx::pin_registers(dk);
        stamps.mark("dV, dK done");
        release_stage(stage);
        // S = K Qᵀ of the next step
        // NOTE: after the last step this multiplies stale shared memory, as above.
        previous = ring;
        ring.advance();
        if (!last) ptx::mbarrier_wait(shared.query_full(ring.index), ring.parity);
        issue_transposed(s, shared.key(), shared.query(ring.index));
        stamps.mark("S issued");
        // dQ is done: hand it to the writer
        ptx::wgmma_wait<1>();
        ptx::pin_registers(dq);
        stamps.mark("dQ done");
        if (wanted) {
            if constexpr (Tile::kLateDQuery) release(shared.dscore_empty(source.index));
            pass_dquery(dq, source);
        }
        has_previous = true;
        stamps.mark("dQ passed");
        // S is done
        ptx::wgmma_wait<0>();
        ptx::pin_registers(s);
        stamps.mark("S done");
    }

    /// One query tile of one head. S has been computed in the step before.
    __device__ __forceinline__ void step(int tile, bool last) {
        const int stage = ring.index;
        float dp[Tile::kQueries / 2];
        std::uint32_t p16[kSteps][4], ds16[kSteps][4];
        // Wait dO, issue dPᵀ = V dOᵀ
        stamps.mark("step");
        ptx::mbarrier_wait(shared.dout_full(stage), ring.parity);
        issue_transposed(dp, shared.value(), shared.dout(stage));
        // P, while dPᵀ is computed; dV += Pᵀ dO
        probabilities(tile, stage);
        round_fragments(s, p16);
        stamps.mark("P");
        if constexpr (Tile::kEarlyDValue) issue_sum(dv, p16, shared.dout(stage));
        stamps.mark("dV issued");
        // Wait dPᵀ, dS to both consumers
        ptx::wgmma_wait<Tile::kEarlyDValue ? 1 : 0>();
        ptx::pin_registers(dp);
        stamps.mark("dP done");
        score_gradients(dp, stage);
        round_fragments(dp, ds16);
        pass_dscore(ds16, stage);
        stamps.mark("dS passed");
        if constexpr (!Tile::kEarlyDValue) issue_sum(dv, p16, shared.dout(stage));
        // dK, dQ, next S
        issue_gradients(ds16, stage, last);
    }

    /// One key block. `parity`: of what comes once for each.
    __device__ __forceinline__ void key_block(std::uint32_t parity) {
#pragma unroll
        for (int i = 0; i < Tile::kHeadDim / 2; ++i) dk[i] = dv[i] = 0;
        has_previous = false;
        typename Keys::KeyRows rows;
        if constexpr (Tile::kEarlyKeyRows) rows = this->key_rows();
        const int first_tile = work.template first_tile<Tile>();
        stamps.mark("place");
        ptx::mbarrier_wait(shared.query_full(ring.index), ring.parity);
        stamps.mark("K");
        issue_transposed(s, shared.key(), shared.query(ring.index));
        free_staging();
        ptx::wgmma_wait<0>();
        ptx::pin_registers(s);
        stamps.mark("first S done");
        int tile = work.end_tile - 1;
        int g = 0;  // one loop instead of two nested ones keeps fewer loop-invariant values in registers
#pragma unroll 1
        while (tile >= first_tile) {
            step(tile, tile == first_tile && g + 1 == arguments.group);
            if (++g == arguments.group) g = 0, --tile;
        }
        stamps.mark("last step done");
        // NOTE: read again, so that the loop keeps only what it needs of it in registers and, where these do not
        // suffice, no addresses that are made of the lane.
        work = work_in_shared<Tile>(shared);
        if constexpr (Tile::kRounds && Tile::kHeadDim == 128) lane = ptx::thread_index() % 32;
        if constexpr (!Tile::kEarlyKeyRows) rows = this->key_rows();
        [[maybe_unused]] float dq[32];
        if constexpr (Tile::kLateDQuery) {
            ptx::mbarrier_wait(shared.dscore_full(previous.index), previous.parity);
            issue_dquery(dq, previous.index);
        }
        typename Keys::Dots dots = this->take_dots(dk, dv, rows);
        if constexpr (!Tile::kStagesOverValues)
            ptx::named_barrier_arrive(Barriers::kValueEmpty, Barriers::kEmptyThreads);
        // NOTE: after the dots, whose reads of shared memory would wait behind these loads.
        typename Keys::Angles angles;
        this->load_angles(rows, angles);
        if constexpr (Tile::kLateDQuery) {
            ptx::wgmma_wait<0>();
            ptx::pin_registers(dq);
            release(shared.dscore_empty(previous.index));
            pass_dquery(dq, previous);
        }
        stamps.mark("last dQ passed");
        ptx::named_barrier_sync(Barriers::kKeys, Tile::kConsumers * kWarpgroupThreads);
        if constexpr (Tile::kNorm)
            this->request_pre();
        else
            this->release_keys();
        this->finish(dk, dv, rows, angles, dots, parity);
        stamps.mark("dK stored");
    }
    /// Waits until what the consumer has staged has been read, for its stores.
    __device__ __forceinline__ void free_staging() const {
        if (warp == 0 && lane == 0) ptx::tma_store_wait_read<0>();
        this->meet();
    }

    __device__ __forceinline__ void run() {
#pragma unroll
        for (int stage = 0; stage < Tile::kStages; ++stage) release_stage(stage);
        this->release_keys();
        ptx::named_barrier_arrive(Barriers::kValueEmpty, Barriers::kEmptyThreads);
        std::uint32_t parity = 0;
        for (;;) {
            work = wait_for_work<Tile>(shared, parity);
            if (work.ends()) break;
            key_block(parity ^ 1);
        }
        free_staging();
    }
};

}  // namespace coda::hopper
