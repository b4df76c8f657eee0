// The fused decode kernel: a whole model's step, many times, in one launch. Device.
//
// One CTA per SM, 11 warps: eight multiply (product.cuh, attention.cuh), two finish tiles (epilogue.cuh,
// attention_epilogue.cuh), one thread of the last brings weights and caches (producer.cuh). They walk the same list of
// stages, and meet at no barrier: a warp waits for the chunk, the words, the panels or the sums that it needs; with
// panels, consumer warps also once per layer until all SMs are done with the layer before. Nothing else holds it up.
//
// Sums are added in one order: MMA steps by four, slices, warps, splits. A sequence is a column of the MMAs. So it has
// the same bits alone and beside others, on any number of SMs, and for any number of steps per launch.
#pragma once

#include "kernels/hopper/decode/warps/attention.cuh"
#include "kernels/hopper/decode/warps/attention_epilogue.cuh"
#include "kernels/hopper/decode/warps/choose.cuh"
#include "kernels/hopper/decode/warps/epilogue.cuh"
#include "kernels/hopper/decode/warps/producer.cuh"

namespace coda::hopper::decode {

/// The same for one stage: what follows from a lane's number is computed in it, and not kept over all stages.
__device__ __forceinline__ Self in_stage(Self self) {
    ptx::hide_origin(self.lane);
    return self;
}

template <int kHeadDim>
__device__ void run_consumer(const Self& all) {
    ConsumerCounts counts;
    Step step;
    for (int token = 0; token < all.arguments.tokens; ++token) {
        if (!begin_step(all, token, step)) return all.watch.leave();
        if (all.warp == 0 && all.lane == 0)
            ptx::store_shared_release(ptx::shared_address(&all.state.closed), static_cast<std::uint32_t>(token));
        for (int s = 0; s < all.arguments.stage_count; ++s) {
            const Self self = in_stage(all);
            const Stage& stage = self.stages[s];
            const Place place = self.place(token, s);
            self.stamp(place, Stamp::begin);
            if (stage.kind == StageKind::attention)
                counts = attend_stage<kHeadDim>(self, stage, token, place, counts);
            else if (stage.kind == StageKind::choose)
                counts.meetings = choose_stage(self.arguments, self.shared, step, place, counts.meetings);
            else
                multiply_stage(self, stage, step, place, counts);
        }
    }
}

template <int kHeadDim>
__device__ void run_epilogue(const Self& all) {
    const int warp = all.warp - kConsumerWarps;
    int tiles = 0, units = 0;
    Step step;
    for (int token = 0; token < all.arguments.tokens; ++token) {
        if (!begin_step(all, token, step)) return all.watch.leave();
        for (int s = 0; s < all.arguments.stage_count; ++s) {
            const Self self = in_stage(all);
            const Stage& stage = self.stages[s];
            const Place place = self.place(token, s);
            self.stamp(place, Stamp::begin);
            if (stage.kind == StageKind::attention) {
                units =
                    finish_attention<kHeadDim>(self, stage, warp, token, place, units, self.arguments.lost_stage == s);
            } else if (stage.kind != StageKind::choose) {
                ProductEpilogue(self, stage, step, s, place).run(warp, tiles);
                tiles += self.tiles_of(stage).number;
            }
        }
    }
}

/// Barriers, the list of stages, and the sequences as the launch finds them. All threads.
__device__ __forceinline__ void set_up(const Self& self) {
    KernelState& state = self.state;
    if (threadIdx.x == 0) {
        const auto init = [](std::uint64_t& barrier, std::uint32_t arrivals) {
            ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
        };
        for (int i = 0; i < kMaxChunks; ++i) {
            init(state.full[i], 1);
            init(state.empty[i], 1);
        }
        for (std::uint64_t& barrier : state.part_full) init(barrier, kConsumerWarps);
        init(state.attention_full, kConsumerWarps);
        init(state.attention_empty, kEpilogueWarps);
        init(state.consumers, kConsumerWarps);
        ptx::fence_mbarrier_init();
        state.issued = 0;
        state.closed = 0;
        for (std::uint32_t& tiles : state.parts_read) tiles = 0;
        state.leaving = 0;
    }
    const int batch = self.shape().batch, thread = static_cast<int>(threadIdx.x);
    if (thread < batch) {
        const std::int32_t* start = self.arguments.start;
        const bool runs = start[2 * batch + thread] == static_cast<std::int32_t>(RowState::running);
        state.start_token[thread] = start[thread];
        state.start_length[thread] = start[batch + thread];
        state.start_running[thread] = runs && start[batch + thread] > 0;
    }
    const auto* from = reinterpret_cast<const std::uint64_t*>(self.arguments.stages);
    auto* to = reinterpret_cast<std::uint64_t*>(self.shared + self.layout().stages);
    const int words = self.arguments.stage_count * static_cast<int>(sizeof(Stage) / sizeof *to);
    for (int i = thread; i < words; i += kThreads) to[i] = from[i];
    for (int s = thread; s < self.arguments.stage_count; s += kThreads)
        if (is_product(self.arguments.stages[s].kind)) ptx::acquire_map(self.map(s));
    __syncthreads();
}

/// Two kernels, one of which hands over panels (Exchange), so that few sequences do not pay for what many need.
template <int kHeadDim, bool kPanels>
__global__ __launch_bounds__(kThreads, 1) void fused_decode(const __grid_constant__ Arguments arguments) {
    extern __shared__ __align__(1024) char memory[];
    const Self self(arguments, memory, kPanels);
    set_up(self);
    if (self.warp < kConsumerWarps)
        run_consumer<kHeadDim>(self);
    else if (self.warp < kConsumerWarps + kEpilogueWarps)
        run_epilogue<kHeadDim>(self);
    else if (self.lane == 0)
        Producer<kHeadDim>(self).run();
}

}  // namespace coda::hopper::decode
