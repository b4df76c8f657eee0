// attention_backward - gradients of causal grouped-query attention
//
//   P = exp(Q Kᵀ / sqrt(hd) - lse), dS = P ∘ (dO Vᵀ - delta)
//   dV = Pᵀ dO, dK = dSᵀ Q / sqrt(hd), dQ = dS K (scaled when it is finished)
//   with positions: dot parts Σ k dk and Σ v dv per row, and dk turned back through RoPE
//
// Roles      warpgroup 0: warp 0 loads, warps 1 and 2 add a consumer's share of dQ to global memory   (24 registers)
//            warpgroups 1-2: 64 keys each, products and softmax                                     (240 registers)
// Pipelines  keys     once                full: 1 arrive + bytes
//            Q + lse, dO + delta (rings)  full: 1 arrive + bytes   empty: a named barrier per stage
//            dQ       consumer -> writer  full: 1 arrive per warp  empty: 1 arrive of the writer
//            dS       consumers -> both   full, empty: 1 arrive per warp of both consumers
// Timeline   per query tile from the last to the diagonal, per query head of the group:
//            issue dPᵀ = V dOᵀ, P from Sᵀ in registers, dS in registers and shared memory,
//            issue dV += Pᵀ dO, dQ = dS K, dK += dSᵀ Q and Sᵀ = K Qᵀ of the next step, hand dQ to the writer.
//            dQ needs dS of both consumers. Where it is late by a step (tile) they need not keep step, and the softmax
//            of one runs under the products of the other.
// Shared     K | V | Q ring | dO ring | dS ring | dQ | row statistics | barriers
//
// One block of 128 keys serves every query head that shares them, so dK and dV are sums in registers, in a fixed order.
// Key blocks add to a dQ tile in order (turns), the first one stores: repeats give the same bits and nothing is
// cleared. In free order they add after the first one's store, as they come. All blocks of a pair take the same tiles
// in the same order and only stop at different ones, so a block that follows another by one step never waits for it.
#pragma once

#include "kernels/hopper/attention/backward_producer.cuh"
#include "kernels/hopper/attention/fragments.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared_vectors.cuh"
#include "kernels/hopper/ptx/wgmma_attention.cuh"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/math/rope.h"

namespace coda::hopper {

template <class Tile>
struct BackwardConsumer {
    static constexpr int kSteps = Tile::kQueries / 16;  // 16-query steps of dV and dK
    using Barriers = BackwardNamedBarriers<Tile>;

    const BackwardArguments& arguments;
    const BackwardShared<Tile>& shared;
    const BackwardWork& work;
    int consumer, warp, lane;
    Ring<Tile::kStages> ring;
    float dk[Tile::kHeadDim / 2], dv[Tile::kHeadDim / 2];
    float s[Tile::kQueries / 2];   // of the next step: its product is issued a step ahead
    int key[2];                    // keys of this thread
    int steps;                     // to come
    Ring<Tile::kStages> previous;  // the step before
    bool started = false;          // there was one

    __device__ __forceinline__ BackwardConsumer(const BackwardArguments& given, const BackwardShared<Tile>& memory,
                                                const BackwardWork& todo, int consumer_, int warp_, int lane_)
        : arguments(given), shared(memory), work(todo), consumer(consumer_), warp(warp_), lane(lane_) {}

    __device__ __forceinline__ void release(std::uint32_t barrier) const {
        if (lane == 0) ptx::mbarrier_arrive(barrier);
    }
    /// Hands a stage of Q or dO back to the loader.
    template <int kEmptyBarriers>
    __device__ __forceinline__ void release_stage(int stage) const {
        static_assert(Tile::kStages == 2, "a stage is the first or the second");
        ptx::named_barrier_arrive_either<kEmptyBarriers, Barriers::kEmptyThreads>(stage);
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

    /// Hands this consumer's share of a dQ tile, that of the step at `position`, to the writer.
    __device__ __forceinline__ void pass_dquery(const float (&dq)[32], const Ring<Tile::kStages>& position) {
        static_assert(Tile::kStages == 2 && Tile::kDQueryStages <= 2, "positions tell the parity of one or two stages");
        constexpr bool kOne = Tile::kDQueryStages == 1;
        const int stage = kOne ? 0 : position.index;
        const std::uint32_t parity = kOne ? static_cast<std::uint32_t>(position.index) : position.parity;
        const auto thread = static_cast<std::uint32_t>(ptx::thread_index());
        ptx::mbarrier_wait(shared.dquery_empty(stage, consumer), parity ^ 1);
        const std::uint32_t to = shared.dquery(stage, consumer) + thread % kWarpgroupThreads * 16;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            ptx::store_shared_quad(to + i * kWarpgroupThreads * 16, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2],
                                   dq[4 * i + 3]);
        ptx::fence_async_shared();
        __syncwarp();
        release(shared.dquery_full(stage, consumer));
    }

    template <bool kMasked>
    __device__ __forceinline__ void step(int tile) {
        const int stage = ring.index;
        float dp[Tile::kQueries / 2];
        ptx::mbarrier_wait(shared.dout_full(stage), ring.parity);
        issue_transposed(dp, shared.value(), shared.dout(stage));

        const float scale_log2 = arguments.scale * kLog2e;
        const std::uint32_t column = 8 * (lane % 4);  // bytes of this lane's first query in a block of 8
        int hidden[2];  // queries of the tile before this one do not see the thread's keys
        if constexpr (kMasked) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                hidden[half] = key[half] - tile * Tile::kQueries - 2 * (lane % 4);
                // NOTE: hides that heads share the mask, which would be kept in registers from one to the next.
                ptx::hide_origin(hidden[half]);
            }
        }
#pragma unroll
        for (int j = 0; j < Tile::kQueries / 8; ++j) {
            const float2 lse = ptx::load_shared_pair(shared.lse(stage) + column + 32 * j);
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& p = s[4 * j + 2 * half + i];
                    p = exp2_approximate(p * scale_log2 - (i == 0 ? lse.x : lse.y));
                    if constexpr (kMasked)
                        if (8 * j + i < hidden[half]) p = 0;
                }
            if constexpr (Tile::kDocuments) {
                const float2 start = ptx::load_shared_pair(shared.start(stage) + column + 32 * j);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    if (key[half] < __float_as_int(start.x)) s[4 * j + 2 * half] = 0;
                    if (key[half] < __float_as_int(start.y)) s[4 * j + 2 * half + 1] = 0;
                }
            }
        }
        std::uint32_t p16[kSteps][4], ds16[kSteps][4];
        round_fragments(s, p16);
        ptx::wgmma_wait<0>();
        ptx::pin_registers(dp);
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
        round_fragments(dp, ds16);
        ptx::mbarrier_wait(shared.dscore_empty(stage), ring.parity ^ 1);
        store_fragments(shared.dscore(stage), Tile::kKeyPanelBytes, 64 * consumer + 16 * warp, lane, ds16);
        ptx::fence_async_shared();
        __syncwarp();
        release(shared.dscore_full(stage));

        issue_sum(dv, p16, shared.dout(stage));
        // NOTE: a late dQ of the first step is of whatever lies there, and nobody reads it: a branch would cost more.
        float dq[32];
        const Ring<Tile::kStages> source = Tile::kLateDQuery ? previous : ring;
        const bool wanted = !Tile::kLateDQuery || started;
        if (wanted) ptx::mbarrier_wait(shared.dscore_full(source.index), source.parity);
        issue_dquery(dq, source.index);
        ptx::wgmma_wait<1>();
        ptx::pin_registers(dv);
        release_stage<Barriers::kDOutEmpty>(stage);
        issue_sum(dk, ds16, shared.query(stage));
        previous = ring;
        ring.advance();
        // As above, of the product after the last step.
        if (--steps > 0) ptx::mbarrier_wait(shared.query_full(ring.index), ring.parity);
        issue_transposed(s, shared.key(), shared.query(ring.index));
        ptx::wgmma_wait<2>();
        ptx::pin_registers(dq);
        if (wanted) {
            release(shared.dscore_empty(source.index));
            pass_dquery(dq, source);
        }
        started = true;
        ptx::wgmma_wait<0>();
        ptx::pin_registers(dk);
        ptx::pin_registers(s);
        release_stage<Barriers::kQueryEmpty>(stage);
    }

    /// Stores dK or dV over the operand it belongs to: `operand` still holds the keys or values themselves.
    __device__ __forceinline__ void store(float (&gradient)[Tile::kHeadDim / 2], std::uint32_t operand, int slot,
                                          bool rotated) {
        const RopeBackwardArguments& rope = arguments.rope;
        if (rope.positions != nullptr) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = 64 * consumer + Fragment::row(warp, lane, half);
                const bool valid = key[half] < arguments.seq_len;
                const std::int64_t token = static_cast<std::int64_t>(work.sequence) * arguments.seq_len + key[half];
                const float factor = valid ? rope.factor(token) : 0.0f;
                float dot = 0;
#pragma unroll
                for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                    gradient[4 * j + 2 * half] *= factor;
                    gradient[4 * j + 2 * half + 1] *= factor;
                    const float2 value = unpack_bf16(
                        ptx::load_shared(operand + j / 8 * Tile::kKeyPanelBytes +
                                         swizzled_offset(row, 16 * (j % 8) + 4 * (lane % 4), kPanelRowBytes)));
                    dot += value.x * gradient[4 * j + 2 * half] + value.y * gradient[4 * j + 2 * half + 1];
                }
                dot = quad_sum(dot);
                if (valid && lane % 4 == 0) rope.dot[slot * rope.dot_ld + token] = dot;
                if (valid && rotated) {
                    const float2* angles =
                        rope.rope + static_cast<std::int64_t>(__ldg(rope.positions + token)) * (Tile::kHeadDim / 2);
#pragma unroll
                    for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                        const float2 angle = __ldg(angles + 4 * j + lane % 4);
                        const int at = 4 * j + 2 * half;
                        const Pair<float> turned =
                            unrotate_pair(Pair<float>{gradient[at], gradient[at + 1]}, angle.x, angle.y);
                        gradient[at] = turned.first;
                        gradient[at + 1] = turned.second;
                    }
                }
            }
        }
        std::uint32_t rounded[Tile::kHeadDim / 16][4];
        round_fragments(gradient, rounded);
        __syncwarp();
        store_fragments(operand, Tile::kKeyPanelBytes, 64 * consumer + 16 * warp, lane, rounded);
        ptx::fence_async_shared();
        ptx::named_barrier_sync(Barriers::kStore + consumer, kWarpgroupThreads);
        if (warp == 0 && lane == 0) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_store(&arguments.dqkv, operand + panel * Tile::kKeyPanelBytes + consumer * 64 * kPanelRowBytes,
                               slot * Tile::kHeadDim + 64 * panel, work.key_block * Tile::kKeys + 64 * consumer,
                               work.sequence);
            ptx::tma_store_commit();
        }
    }

    __device__ __forceinline__ void run() {
#pragma unroll
        for (int stage = 0; stage < Tile::kStages; ++stage) {
            release_stage<Barriers::kQueryEmpty>(stage);
            release_stage<Barriers::kDOutEmpty>(stage);
        }
        key[0] = work.key_block * Tile::kKeys + 64 * consumer + Fragment::row(warp, lane, 0);
        key[1] = key[0] + 8;
#pragma unroll
        for (int i = 0; i < Tile::kHeadDim / 2; ++i) dk[i] = dv[i] = 0;
        ptx::mbarrier_wait(shared.key_full(), 0);
        // Query tiles that begin before the last key are masked, later ones see all keys.
        const int whole = min(work.end_tile, (work.key_block + 1) * Tile::kKeys / Tile::kQueries);
        steps = (work.end_tile - work.first_tile) * work.group;
        ptx::mbarrier_wait(shared.query_full(0), 0);
        issue_transposed(s, shared.key(), shared.query(0));
        ptx::wgmma_wait<0>();
        ptx::pin_registers(s);
        int tile = work.end_tile - 1;
        int g = 0;  // one loop rather than two nested ones: fewer values that stay the same are kept for it
#pragma unroll 1
        while (!Tile::kMaskAll && tile >= whole) {
            step<false>(tile);
            if (++g == work.group) g = 0, --tile;
        }
#pragma unroll 1
        while (tile >= work.first_tile) {
            step<true>(tile);
            if (++g == work.group) g = 0, --tile;
        }
        if constexpr (Tile::kLateDQuery) {
            float dq[32];
            ptx::mbarrier_wait(shared.dscore_full(previous.index), previous.parity);
            issue_dquery(dq, previous.index);
            ptx::wgmma_wait<0>();
            ptx::pin_registers(dq);
            pass_dquery(dq, previous);
        }
        store(dv, shared.value(), arguments.heads + arguments.kv_heads + work.kv_head, false);
#pragma unroll
        for (float& value : dk) value *= arguments.scale;
        ptx::named_barrier_sync(Barriers::kKeys,
                                Tile::kConsumers * kWarpgroupThreads);  // dQ of both consumers has read the keys
        store(dk, shared.key(), arguments.heads + work.kv_head, true);
        if (warp == 0 && lane == 0) ptx::tma_store_wait_read<0>();
    }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attention_backward(const __grid_constant__ BackwardArguments arguments) {
    extern __shared__ __align__(kSwizzleAtomBytes) std::byte dynamic_shared[];
    const BackwardShared<Tile> shared(dynamic_shared);
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = static_cast<int>(threadIdx.x % 32);

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(shared.key_full(), 1);
        for (int stage = 0; stage < Tile::kStages; ++stage) {
            ptx::mbarrier_init(shared.query_full(stage), 1);
            ptx::mbarrier_init(shared.dout_full(stage), 1);
            ptx::mbarrier_init(shared.dscore_full(stage), 4 * Tile::kConsumers);
            ptx::mbarrier_init(shared.dscore_empty(stage), 4 * Tile::kConsumers);
        }
        for (int stage = 0; stage < Tile::kDQueryStages; ++stage)
            for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
                ptx::mbarrier_init(shared.dquery_full(stage, consumer), 4);
                ptx::mbarrier_init(shared.dquery_empty(stage, consumer), 1);
            }
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(&arguments.key_value);
        ptx::prefetch_tensor_map(&arguments.query);
        ptx::prefetch_tensor_map(&arguments.dout);
        ptx::wait_for_predecessor();
        // NOTE: work by ticket rather than blockIdx: a block that waits for another's turn knows that it has started.
        ptx::store_shared(shared.item(), static_cast<std::uint32_t>(atomicAdd(arguments.scratch.ticket, 1)));
    }
    __syncthreads();
    ptx::wait_for_predecessor();
    ptx::let_successor_start();
    const int item = __shfl_sync(0xffffffffu, static_cast<int>(ptx::load_shared(shared.item())), 0);
    const BackwardWork work = backward_work<Tile>(arguments, item);

    if (warp < 4) {
        ptx::give_registers<Tile::kProducerRegisters>();
        if (warp == 0) {
            backward_load<Tile>(arguments, shared, work);
        } else if (warp <= Tile::kConsumers) {
            if (ptx::elect_one()) backward_write<Tile>(arguments, shared, work, warp - 1);
        }
        __syncwarp();
    } else {
        ptx::take_registers<Tile::kConsumerRegisters>();
        BackwardConsumer<Tile>(arguments, shared, work, warp / 4 - 1, warp % 4, lane).run();
    }
}

}  // namespace coda::hopper
