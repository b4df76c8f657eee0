// The role of the warps of warpgroup 0 that do not load, in attention_forward where o is stored as FP8 codes too: each
// rounds what one consumer has staged, while the consumer computes its next tile. The whole is described in
// forward.cuh.
#pragma once

#include "kernels/hopper/attention/codes.cuh"
#include "kernels/hopper/attention/forward_producer.cuh"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared_vectors.cuh"

namespace coda::hopper {

/// Barriers of consumer 0's staging; those of consumer c have numbers higher by c. With codes, the warp that stores
/// them arrives at kFree when it has read the staging, and waits at kStaged for o. NOTE: that takes two barriers. A
/// warp that arrives at a barrier, and waits at the same one before all others have arrived, is counted twice.
template <class Tile>
struct OutBarriers {
    static constexpr int kFree = 5, kStaged = Tile::kRounds ? 8 : kFree;
    static constexpr int kThreads = kWarpgroupThreads + (Tile::kRounds ? 32 : 0);
    static_assert(Tile::kConsumers <= 3, "warpgroup 0 has three warps that do not load, and kStaged is kFree + 3");
    static_assert(kStaged + Tile::kConsumers <= kNamedBarriers, "a block has 16 named barriers");
};

/// Stores the codes of one consumer's part of tile after tile.
template <class Tile>
__device__ __forceinline__ void forward_store_codes(const ForwardArgumentsOf<Tile>& arguments,
                                                    const ForwardShared<Tile>& shared, int consumer, int lane) {
    using Barriers = OutBarriers<Tile>;
    Ring<Tile::kQueryStages> queries;
    for (;;) {
        // Wait for the tile's place, release it
        ptx::mbarrier_wait(shared.query_full(queries.index), queries.parity);
        const int4 place = ptx::load_shared_integers(shared.work(queries.index));
        const int sequence = place.x, head = place.y, first = place.z + 64 * consumer;
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(shared.query_empty(queries.index));
        queries.advance();
        if (sequence < 0) return;
        // Staging is free: wait for o
        ptx::named_barrier_arrive(Barriers::kFree + consumer, Barriers::kThreads);
        ptx::named_barrier_sync(Barriers::kStaged + consumer, Barriers::kThreads);
        // NOTE: at head_dim 64 this warpgroup has registers for 4 columns.
        store_codes<DType::f8e4m3, Tile::kHeadDim, 32, Tile::kHeadDim == 64 ? 4 : 8>(
            arguments.codes, sequence * arguments.seq_len + first, first < 0 ? 0 : min(64, arguments.seq_len - first),
            head * Tile::kHeadDim, lane, PanelRows{shared.out(consumer), Tile::kOutPanelBytes, 0});
        __syncwarp();
    }
}

}  // namespace coda::hopper
