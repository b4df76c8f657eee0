// attention_backward - gradients of causal grouped-query attention
//
//   P = exp(Q Kᵀ / sqrt(hd) - lse), dS = P ∘ (dO Vᵀ - delta)
//   dV = Pᵀ dO, dK = dSᵀ Q / sqrt(hd), dQ = dS K (scaled when it is finished)
//   with dot: its parts Σ k dk and Σ v dv per row; with rope: dk rotated back through it
//   with a norm of heads: dk back through it too (backward_norm.cuh)
//   with a bias: its share left out of dot, and the sums of dk and dv over 64 keys (backward_bias.cuh)
//
// CTAs       one per SM, which draws key blocks by ticket
// Roles      warpgroup 0: warp 0 draws and loads, a warp for every stage of dQ adds it to memory  (24 registers)
//            warpgroups 1-2: 64 keys each, GEMMs and softmax                                        (240 registers)
// Pipelines  a key block's place          full: 1 arrive           empty: 1 arrive of each writer, and K's
//            Q + lse, dO + delta (rings)  full: 1 arrive + bytes   empty: a named barrier per stage
//            K, V     with a key block's first Q and first dO      empty: a named barrier each
//            pre      with a norm of heads, where K was            full: 1 arrive + bytes of each consumer; empty: K's
//            dQ       consumers -> writer full: 1 arrive per warp of both consumers  empty: 1 arrive of the writer
//            dS       consumers -> both   full: 1 arrive per warp of both consumers   empty: likewise (kLateDQuery)
// Timeline   per query tile from the last to the diagonal, per query head of the group:
//            issue dPᵀ = V dOᵀ, P from Sᵀ in registers, issue dV += Pᵀ dO, dS in registers and shared memory,
//            issue dK += dSᵀ Q, dQ = dS K and Sᵀ = K Qᵀ of the next step, hand dQ to the writer.
//            At head_dim 64, dV follows dS (kEarlyDValue). dQ needs dS of both consumers. Where it is late by a step
//            (kLateDQuery) neither waits for the other, and the softmax of one runs under the GEMMs of the other.
//            Between key blocks the consumers take dots with K and V, hand both back, and finish and store dV and dK
//            while the next K, V, Q and dO load. With a norm of heads they hand K back once they have read pre.
// Shared     K | V | Q ring | dO ring | dS ring, or dK and dV for their stores | dQ | row statistics | place | barriers
//
// One block of 128 keys serves every query head that shares them, so dK and dV are sums in registers, in a fixed order.
// Key blocks add to a dQ tile in order, and the first one stores: repeats give the same bits and nothing is cleared. A
// counter per dQ tile, its turn, is the number of blocks that have added. Without documents all blocks of a pair take
// the same tiles in the same order and only stop at different ones, so a block that follows another by one step never
// waits for it.
#pragma once

#include "kernels/hopper/attention/backward_consumer.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attention_backward(const __grid_constant__ BackwardArgumentsOf<Tile> arguments) {
    extern __shared__ __align__(kSwizzleAtomBytes) std::byte dynamic_shared[];
    const BackwardShared<Tile> shared(dynamic_shared);
    const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = static_cast<int>(threadIdx.x % 32);

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(shared.work_full(), 1);
        ptx::mbarrier_init(shared.work_empty(), Tile::kDQueryStages);
        ptx::mbarrier_init(shared.pre_full(), Tile::kConsumers);
        for (int stage = 0; stage < Tile::kStages; ++stage) {
            ptx::mbarrier_init(shared.query_full(stage), 1);
            ptx::mbarrier_init(shared.dout_full(stage), 1);
            ptx::mbarrier_init(shared.dscore_full(stage), 4 * Tile::kConsumers);
            ptx::mbarrier_init(shared.dscore_empty(stage), 4 * Tile::kConsumers);
        }
        for (int stage = 0; stage < Tile::kDQueryStages; ++stage) {
            ptx::mbarrier_init(shared.dquery_full(stage), 4 * Tile::kConsumers);
            ptx::mbarrier_init(shared.dquery_empty(stage), 1);
        }
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(&arguments.key_value);
        ptx::prefetch_tensor_map(&arguments.query);
        ptx::prefetch_tensor_map(&arguments.dout);
    }
    __syncthreads();
    ptx::wait_on_dependencies();
    ptx::launch_dependents();

    if (warp < 4) {
        ptx::decrease_registers<Tile::kProducerRegisters>();
        if (warp == 0) {
            backward_load<Tile>(arguments, shared);
        } else if (warp <= Tile::kDQueryStages) {
            if (ptx::elect_one()) backward_write<Tile>(arguments, shared);
        }
        __syncwarp();
    } else {
        ptx::increase_registers<Tile::kConsumerRegisters>();
        BackwardConsumer<Tile>(arguments, shared, warp / 4 - 1, warp % 4, lane).run();
    }
}

}  // namespace coda::hopper
