// What every warp of the kernel knows: the parameters, its own number, its SM's shared memory; how words are made and
// read; and how a step begins. Device.
#pragma once

#include "kernels/hopper/decode/exchange/watchdog.cuh"
#include "kernels/hopper/decode/plan/arguments.h"
#include "kernels/hopper/decode/plan/attention_work.h"
#include "kernels/hopper/decode/report/trace.h"
#include "kernels/hopper/ptx/math.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper::decode {

__device__ __forceinline__ std::uint64_t ll_word(std::uint32_t content, std::uint32_t epoch) {
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
__device__ __forceinline__ std::uint32_t ll_data(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
/// 0 where both words have the epoch. Bits, so that one branch compares many words.
__device__ __forceinline__ std::uint32_t missing(const ptx::LlPair& words, std::uint32_t epoch) {
    return (static_cast<std::uint32_t>(words.first >> 32) ^ epoch) |
           (static_cast<std::uint32_t>(words.second >> 32) ^ epoch);
}
/// What stands where no word is wanted: nothing is missing there.
__device__ __forceinline__ ptx::LlPair ll_pair_without_data(std::uint32_t epoch) {
    return {ll_word(0, epoch), ll_word(0, epoch)};
}
__device__ __forceinline__ uint2 ll_data_pair(const ptx::LlPair& words) {
    return {ll_data(words.first), ll_data(words.second)};
}

/// A stage of the ring, and how often the ring has been filled before. With a count in its place, every k-tile would
/// wait for a division by the number of stages, which is known only at run time.
struct RingSlot {
    int slot = 0;
    std::uint32_t round = 0;

    /// By at most a few rounds; ring: stages.
    __device__ __forceinline__ void advance(int stages, int ring) {
        for (slot += stages; slot >= ring; slot -= ring) ++round;
    }
    __device__ __forceinline__ void advance_far(int stages, int ring) {
        slot += stages;
        round += static_cast<std::uint32_t>(slot / ring);
        slot %= ring;
    }
    /// Stages of the launch before it.
    __device__ __forceinline__ std::uint32_t count(int ring) const {
        return round * static_cast<std::uint32_t>(ring) + static_cast<std::uint32_t>(slot);
    }
};

/// What an instance of the kernel takes; constants in it.
struct Instance {
    bool lamport = false;   // hands over the inputs of GEMMs in Lamport buffers: uses_lamport()
    bool int4 = false;      // weights may be 4-bit integers
    bool extended = false;  // takes what Shape::extended() asks for
    bool shares = false;    // DecodePlan::shares_caches()
    int octets = 1;         // octets_of()
};

struct WarpContext {
    // By value: the compiler then reads the kernel's parameters as operands in the constant bank. If their address were
    // taken, it would load them from memory, and the loads of a k-tile would wait for one another.
    const Arguments arguments;
    char* shared;
    int sm, warp, lane;
    bool lamport, int4, extended, shares;  // Instance
    int octets;
    Watchdog watchdog;

    __device__ WarpContext(const Arguments& given, char* memory, const Instance& instance)
        : arguments(given),
          shared(memory),
          sm(static_cast<int>(blockIdx.x)),
          warp(static_cast<int>(threadIdx.x) / 32),
          lane(static_cast<int>(threadIdx.x) % 32),
          lamport(instance.lamport),
          int4(instance.int4),
          extended(instance.extended),
          shares(instance.shares),
          octets(instance.octets),
          watchdog(given.report, given.watchdog_nanoseconds,
                   *reinterpret_cast<SharedState*>(memory + given.layout.state)) {}

    __device__ const Operands& operands() const { return arguments.operands; }
    __device__ const Shape& shape() const { return arguments.operands.shape; }
    __device__ const Layout& layout() const { return arguments.layout; }
    __device__ int grid() const { return arguments.grid; }
    __device__ std::uint64_t* words(std::int64_t offset) const { return arguments.words + offset; }
    __device__ char* lamport_of(std::int64_t vector, int buffer) const {
        return reinterpret_cast<char*>(words(vector + buffer * arguments.exchange.lamport_words));
    }
    __device__ int buffer_of(int step, int op) const { return lamport_buffer(arguments.layers, step, op); }

    // Not members, which would take registers.
    __device__ __forceinline__ SharedState& state() const {
        return *reinterpret_cast<SharedState*>(shared + layout().state);
    }
    /// The op's copy in shared memory.
    __device__ __forceinline__ const DecodeOp& op(int index) const {
        return reinterpret_cast<const DecodeOp*>(shared + layout().ops)[index];
    }
    /// The tensor map of a GEMM's weights.
    __device__ const void* map(int op) const { return arguments.maps + std::int64_t{kMapBytes} * op; }

    /// This is a constant, except in the instances for three to eight sequences.
    __device__ __forceinline__ bool splits_tiles() const {
        return octets > 1 || (lamport && decode::splits_tiles(shape().batch));
    }
    /// Whether SMs are in pairs, which are clusters: pairs_sms(). A constant where they never are.
    __device__ bool pairs() const { return int4 && octets == kMaxOctets && arguments.pairs; }
    __device__ int rank() const { return sm % 2; }  // in the pair
    __device__ bool is_int4(const DecodeOp& op) const { return int4 && op.int4; }
    __device__ bool has_map(const DecodeOp& op) const { return is_gemm(op.kind) && !is_int4(op); }
    __device__ Slices slices(int columns) const { return slices_of(columns, int4); }
    __device__ OwnTiles tiles_of(const DecodeOp& op) const { return own_tiles(op.tiles, op.rotation, sm, grid()); }
    /// Of the pair's other SM.
    __device__ OwnTiles partner_tiles_of(const DecodeOp& op) const {
        return own_tiles(op.tiles, op.rotation, sm ^ 1, grid());
    }
    __device__ WorkItem item(int step, int op) const {
        return {step, op, -1, epoch_of(arguments.epoch, arguments.op_count, step, op)};
    }

    /// The time of what this warp comes to for the first time, if this step is traced.
    __device__ __forceinline__ void stamp(const WorkItem& item, Stamp which) const {
        if (item.step != arguments.traced_step || lane != 0) return;
        std::uint64_t* time = arguments.trace + stamp_index(item.op, sm, grid(), warp, which);
        if (*time == 0) *time = ptx::global_time();
    }

    __device__ int planned(int sequence, int step) const {
        return planned_length(state().start_running[sequence] != 0, state().start_length[sequence], step,
                              shape().context);
    }
    __device__ int cache_of(const DecodeOp& op, int sequence) const {
        return shares ? op.cache_of(sequence) : sequence;
    }
    /// Of a planned length.
    __device__ int visible(int length) const { return extended ? visible_positions(length, shape().window) : length; }
    struct Visible {
        const WarpContext& ctx;
        int step;
        __device__ int operator()(int sequence) const { return ctx.visible(ctx.planned(sequence, step)); }
    };
    /// head_dim is the model's: a constant where the caller knows it, so that nothing is divided by it.
    __device__ __forceinline__ AttentionTiles<Visible> attention_tiles(int step, int head_dim) const {
        return {{*this, step}, shape().batch, shape().kv_heads, head_dim};
    }
    __device__ bool any_at_start() const {
        bool any = false;
        for (int b = 0; b < shape().batch; ++b) any = any || state().start_running[b] != 0;
        return any;
    }

    __device__ char* stage(const RingSlot& at) const { return shared + at.slot * stage_bytes(int4); }
    /// Of a tile, counted over all ops; their number is a power of two.
    __device__ int partial_entry(int tile) const { return tile & (layout().partial_entries - 1); }
    __device__ float* partial(int entry, int index) const {
        return reinterpret_cast<float*>(shared + layout().partials) +
               (entry * kConsumerWarps + index) * layout().partial_floats;
    }
    /// Two of an SM, one per epilogue warp.
    __device__ std::uint32_t* arrivals_of(int of_sm) const {
        return reinterpret_cast<std::uint32_t*>(words(arguments.exchange.arrivals)) + kEpilogueWarps * of_sm;
    }
    /// An epilogue warp has stored all of its results of this layer, and emptied what it had to. Whoever acquires the
    /// arrival sees what the warp stored before.
    __device__ void arrive(int epilogue_warp, const WorkItem& item) const {
        static_assert(kEpilogueWarps == 2);  // load_numbers
        __syncwarp();
        if (lane == 0)
            ptx::store_release(reinterpret_cast<int*>(arrivals_of(sm) + epilogue_warp), static_cast<int>(item.epoch));
    }
    __device__ char* input_of_warp(int consumer) const {
        return shared + layout().input + consumer * layout().input_bytes;
    }
    __device__ char* input() const { return input_of_warp(warp); }
    /// Of a consumer warp, in its input memory (plan/attention_input.h).
    __device__ float* attention_partial(int consumer) const {
        return reinterpret_cast<float*>(input_of_warp(consumer));
    }
};

/// The newest tokens in a step: lane b has sequence b's token, and bit 31 while the sequence runs. A sequence that does
/// not run has token 0.
struct StepTokens {
    int step = 0;
    std::uint32_t row = 0;

    __device__ int of(int sequence) const {
        return static_cast<int>(__shfl_sync(kAllLanes, row, sequence) & 0x7fffffffu);
    }
    __device__ bool running(int sequence) const { return __shfl_sync(kAllLanes, row, sequence) >> 31 != 0; }
};

/// Waits for the commit of the step before: all caches are written, and the tokens are chosen. False where no sequence
/// runs, and where the host has cancelled. One warp.
__device__ __forceinline__ bool begin_step(const WarpContext& ctx, int step, StepTokens& tokens) {
    const int batch = ctx.shape().batch;
    int lane = ctx.lane;
    ptx::hide_origin(lane);  // or registers would keep what follows from it over all steps
    tokens = {step, 0};
    if (step == 0) {
        if (lane < batch && ctx.state().start_running[lane] != 0)
            tokens.row = static_cast<std::uint32_t>(ctx.state().start_token[lane]) | 0x80000000u;
        return __any_sync(kAllLanes, tokens.row != 0);
    }
    // Of the last op of the step before.
    int first = static_cast<int>(epoch_of(ctx.arguments.epoch, ctx.arguments.op_count, step, 0));
    ptx::hide_origin(first);  // likewise
    const auto epoch = static_cast<std::uint32_t>(first - 1);
    const std::uint64_t* own = ctx.words(ctx.arguments.exchange.token) + lane;
    std::uint64_t word = 0;
    const bool came = ctx.watchdog.wait(WorkItem{step, 0, -1, epoch}, Awaited::token, [&] {
        if (lane > batch) return true;
        word = ptx::load_ll(own);
        // A warp may come so late that a later step has committed some sequences or all of them. Of all, it had no work
        // in that step. Of some, those are sequences that it has no work for: each epilogue warp of an SM has half of
        // them, and a step commits a sequence after the largest logits of the SMs' warps for it.
        return not_before(word, epoch);
    });
    // All lanes exit or none. Lanes that need not wait would take it for the end of the launch, and would make the SM's
    // other warps exit before these report their own, earlier waits.
    if (!__all_sync(kAllLanes, came)) ptx::exit_thread();
    // Orders what others wrote before the commit with this warp's reads, and with copies that begin after it.
    ptx::fence_gpu();
    ptx::fence_async();
    __syncwarp();
    // A word of a later step is not for this one, in which other warps of this SM may still have work: neither its stop
    // nor that its sequence does not run any more.
    const bool later = lane < batch && !has_epoch(word, epoch);
    if (lane < batch || (lane == batch && has_epoch(word, epoch))) tokens.row = ll_data(word);
    const bool stop = __shfl_sync(kAllLanes, tokens.row, batch) != 0;
    if (lane >= batch) tokens.row = 0;
    return __any_sync(kAllLanes, later || tokens.row >> 31 != 0) && !stop;
}

}  // namespace coda::hopper::decode
