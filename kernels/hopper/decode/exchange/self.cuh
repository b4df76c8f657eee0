// What every thread of the kernel knows: its parameters, its place, its SM's shared memory; and how words are handed
// over. Device.
#pragma once

#include "kernels/hopper/decode/exchange/arguments.h"
#include "kernels/hopper/decode/exchange/watch.cuh"
#include "kernels/hopper/decode/plan/attention_work.h"

namespace coda::hopper::decode {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ std::uint64_t word_of(std::uint32_t content, std::uint32_t epoch) {
    return std::uint64_t{epoch} << 32 | content;
}
__device__ __forceinline__ bool has_epoch(std::uint64_t word, std::uint32_t epoch) {
    return static_cast<std::uint32_t>(word >> 32) == epoch;
}
__device__ __forceinline__ bool is_not_before(std::uint32_t found, std::uint32_t epoch) {
    return static_cast<std::int32_t>(found - epoch) >= 0;
}
__device__ __forceinline__ bool not_before(std::uint64_t word, std::uint32_t epoch) {
    return is_not_before(static_cast<std::uint32_t>(word >> 32), epoch);
}
__device__ __forceinline__ std::uint32_t content_of(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
__device__ __forceinline__ bool have_epoch(const ptx::Words& words, std::uint32_t epoch) {
    return has_epoch(words.first, epoch) && has_epoch(words.second, epoch);
}
__device__ __forceinline__ uint2 contents_of(const ptx::Words& words) {
    return {content_of(words.first), content_of(words.second)};
}

struct Self {
    const Arguments& arguments;
    char* shared;
    KernelState& state;
    const Stage* stages;  // in shared memory
    int sm, grid, warp, lane;
    bool panels;  // hand over the inputs of products: has_panels(), as a constant
    Watch watch;

    __device__ Self(const Arguments& given, char* memory, bool has_panels)
        : arguments(given),
          shared(memory),
          state(*reinterpret_cast<KernelState*>(memory + given.layout.state)),
          stages(reinterpret_cast<const Stage*>(memory + given.layout.stages)),
          sm(static_cast<int>(blockIdx.x)),
          grid(given.grid),
          warp(static_cast<int>(threadIdx.x) / 32),
          lane(static_cast<int>(threadIdx.x) % 32),
          panels(has_panels),
          watch(given.report, given.watchdog_nanoseconds, state) {}

    __device__ const Operands& operands() const { return arguments.operands; }
    __device__ const Shape& shape() const { return arguments.operands.shape; }
    __device__ const Layout& layout() const { return arguments.layout; }
    __device__ std::uint64_t* words(std::int64_t offset) const { return arguments.words + offset; }
    __device__ char* panels_of(std::int64_t vector, int copy) const {
        return reinterpret_cast<char*>(words(vector + copy * arguments.exchange.panel_words));
    }
    __device__ int copy_of(int token, int stage) const { return panel_copy(arguments.stage_count, token, stage); }

    /// The tensor map of a product's weights.
    __device__ const void* map(int stage) const { return arguments.maps + std::int64_t{kMapBytes} * stage; }

    __device__ OwnTiles tiles_of(const Stage& stage) const { return own_tiles(stage.tiles, stage.rotation, sm, grid); }
    __device__ Place place(int token, int stage) const {
        return {token, stage, -1, epoch_of(arguments.epoch, arguments.stage_count, token, stage)};
    }

    /// The time of what this warp comes to for the first time, if this step is traced.
    __device__ __forceinline__ void stamp(const Place& place, Stamp which) const {
        if (place.token != arguments.traced_step || lane != 0) return;
        std::uint64_t* time = arguments.trace + stamp_index(place.stage, sm, grid, warp, which);
        if (*time == 0) *time = ptx::global_time();
    }

    __device__ int planned(int sequence, int token) const {
        return planned_length(state.start_running[sequence] != 0, state.start_length[sequence], token, shape().context);
    }
    struct Lengths {
        const Self& self;
        int token;
        __device__ int operator()(int sequence) const { return self.planned(sequence, token); }
    };
    /// head_dim is the model's: a constant where the caller knows it, so that nothing is divided by it.
    __device__ __forceinline__ AttentionUnits<Lengths> attention_units(int token, int head_dim) const {
        return {{*this, token}, shape().batch, shape().kv_heads, head_dim};
    }
    __device__ bool any_at_start() const {
        bool any = false;
        for (int b = 0; b < shape().batch; ++b) any = any || state.start_running[b] != 0;
        return any;
    }

    /// The chunk that is the n-th of this launch.
    __device__ char* chunk(std::uint32_t n) const {
        return shared + n % static_cast<std::uint32_t>(layout().chunks) * kChunkBytes;
    }
    __device__ float* part(int entry, int index) const {
        return reinterpret_cast<float*>(shared + layout().parts) +
               (entry * kConsumerWarps + index) * layout().part_floats;
    }
    __device__ float* attention_part(int index) const {
        return reinterpret_cast<float*>(shared + layout().attention) + index * layout().attention_floats;
    }
    /// Two of an SM, one per epilogue warp.
    __device__ std::uint32_t* arrivals_of(int of_sm) const {
        return reinterpret_cast<std::uint32_t*>(words(arguments.exchange.arrivals)) + kEpilogueWarps * of_sm;
    }
    /// An epilogue warp has stored all of its results of this layer, and emptied what it had to. Whoever acquires the
    /// arrival sees what the warp stored before.
    __device__ void arrive(int epilogue_warp, const Place& place) const {
        static_assert(kEpilogueWarps == 2);  // load_numbers
        __syncwarp();
        if (lane == 0)
            ptx::store_release(reinterpret_cast<int*>(arrivals_of(sm) + epilogue_warp), static_cast<int>(place.epoch));
    }
    __device__ char* input() const { return shared + layout().input + warp * layout().input_bytes; }
};

/// A step as a warp sees it: lane b has sequence b's newest token, and bit 31 while the sequence runs. A sequence that
/// does not run has token 0.
struct Step {
    int number = 0;
    std::uint32_t row = 0;

    __device__ int token(int sequence) const {
        return static_cast<int>(__shfl_sync(kAllLanes, row, sequence) & 0x7fffffffu);
    }
    __device__ bool running(int sequence) const { return __shfl_sync(kAllLanes, row, sequence) >> 31 != 0; }
};

/// Waits until the step before has closed: all caches are written, and the tokens chosen. False where none runs or all
/// are to stop. One warp.
__device__ __forceinline__ bool begin_step(const Self& self, int number, Step& step) {
    const int batch = self.shape().batch;
    step = {number, 0};
    if (number == 0) {
        if (self.lane < batch && self.state.start_running[self.lane] != 0)
            step.row = static_cast<std::uint32_t>(self.state.start_token[self.lane]) | 0x80000000u;
        return __any_sync(kAllLanes, step.row != 0);
    }
    // Of the last stage of the step before.
    const std::uint32_t epoch = epoch_of(self.arguments.epoch, self.arguments.stage_count, number, 0) - 1;
    const std::uint64_t* words = self.words(self.arguments.exchange.token);
    std::uint64_t word = 0;
    const bool came = self.watch.wait(Place{number, 0, -1, epoch}, Awaited::token, [&] {
        if (self.lane > batch) return true;
        word = ptx::load_word(words + self.lane);
        // A warp without work may come so late that a later step has closed. Then it had no work in that one either.
        return not_before(word, epoch);
    });
    // All lanes exit or none: those that need not wait would take it for the end of the launch, and tell the SM's other
    // warps to leave before these report their own, earlier waits.
    if (!__all_sync(kAllLanes, came)) ptx::exit_thread();
    // What the others wrote before they closed the step, and what copies are to bring after it.
    ptx::fence_gpu();
    ptx::fence_async();
    __syncwarp();
    // A word of a later step is not for this one, in which other warps of this SM may still have work: neither its stop
    // nor that its sequence does not run any more.
    const bool later = self.lane < batch && !has_epoch(word, epoch);
    if (self.lane < batch || (self.lane == batch && has_epoch(word, epoch))) step.row = content_of(word);
    const bool stop = __shfl_sync(kAllLanes, step.row, batch) != 0;
    if (self.lane >= batch) step.row = 0;
    return __any_sync(kAllLanes, later || step.row >> 31 != 0) && !stop;
}

}  // namespace coda::hopper::decode
