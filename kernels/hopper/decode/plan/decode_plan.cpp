#include "kernels/hopper/decode/plan/decode_plan.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "kernels/hopper/decode/plan/attention_input.h"
#include "kernels/hopper/decode/plan/attention_work.h"
#include "kernels/hopper/decode/plan/shared_state.h"
#include "kernels/hopper/sm90/limits.h"

namespace coda::hopper::decode {

const char* name_of(OpKind kind) {
    switch (kind) {
        case OpKind::qkv: return "qkv";
        case OpKind::attention: return "attention";
        case OpKind::attn_out: return "attn_out";
        case OpKind::gate_up: return "gate_up";
        case OpKind::down: return "down";
        case OpKind::head: return "head";
        case OpKind::choose: return "choose";
    }
    return "?";
}

Exchange exchange_of(const Shape& shape, int grid) {
    Exchange exchange;
    const auto add = [&](std::int64_t words) {
        const std::int64_t first = exchange.words;
        exchange.words += round_up(words, 16);  // vectors start at 128 bytes
        return first;
    };
    const std::int64_t batch = shape.batch;
    exchange.qkv = add(batch * shape.qkv_columns() / 2);
    exchange.o = add(batch * shape.q_columns() / 2);
    exchange.middle = add(batch * shape.width / 2);
    exchange.y = add(batch * shape.feed_forward / 2);
    exchange.x = add(batch * shape.width / 2);
    exchange.splits = add(batch * shape.heads * kMaxSplits * (shape.head_dim + 2));
    if (shape.head_norms) {
        exchange.squares = add(batch * shape.rotated_tiles());
        exchange.newest = add(batch * 2 * shape.kv_columns());
    }
    exchange.best = add(std::int64_t{grid} * kEpilogueWarps * batch * 4);
    exchange.token = add(batch + 1);
    if (!uses_lamport(shape.batch)) return exchange;
    const auto add_lamport = [&](int columns) {
        return add(shape.slices(columns).number * std::int64_t{octets_of(shape.batch)} * kLamportSliceBytes / 8);
    };
    exchange.lamport = exchange.words;
    exchange.o_lamport = add_lamport(shape.q_columns());
    exchange.middle_lamport = add_lamport(shape.width);
    exchange.y_lamport = add_lamport(shape.feed_forward);
    exchange.x_lamport = add_lamport(shape.width);
    exchange.lamport_words = exchange.words - exchange.lamport;
    exchange.words += (kLamportBuffers - 1) * exchange.lamport_words;
    exchange.arrivals = add(std::int64_t{grid} * kEpilogueWarps / 2);
    return exchange;
}

int fastest_in_flight(const DecodePlan& plan, double memory_bytes_per_s) {
    const Shape& shape = plan.operands.shape;
    if (shape.int4 || uses_lamport(shape.batch)) return kInFlightBytes;
    return static_cast<int>(kInFlightSeconds * memory_bytes_per_s / plan.grid);
}

Layout layout_of(const DecodePlan& plan, int in_flight_bytes) {
    const Shape& shape = plan.operands.shape;
    Layout layout;
    for (const DecodeOp& op : plan.ops) {
        if (!is_gemm(op.kind)) continue;
        const int kept = resident_slices(shape.slices(op.columns), shape.batch);
        const int bytes = shape.batch * (uses_lamport(shape.batch) || shape.int4 ? std::max(kept, 1) * kInputPitch
                                                                                 : input_pitch(kept));
        layout.input_bytes = std::max(layout.input_bytes, bytes);
    }
    layout.input_bytes =
        std::max(layout.input_bytes, AttentionInput::bytes(shape.group(), shape.head_dim, plan.shares_caches()));
    layout.partial_floats = round_up((kTileRows + 1) * shape.batch, 2);  // read two at a time
    const int bytes_of_stage = stage_bytes(shape.int4);
    // With fewer, a load would wait for the MMAs on the stage before it.
    constexpr int kFewest = 3;
    const auto bytes_of_ops = static_cast<std::int64_t>(plan.ops.size() * sizeof(DecodeOp));
    const std::int64_t bytes_of_entry = 4LL * kConsumerWarps * layout.partial_floats;
    const auto padded = [](std::int64_t bytes) { return round_up(bytes, 128); };
    const auto left_for_ring = [&](int entries) {
        return kMaxSharedBytes - padded(kConsumerWarps * std::int64_t{layout.input_bytes}) -
               padded(entries * bytes_of_entry) - padded(bytes_of_ops) - padded(sizeof(SharedState));
    };
    // Where partials are large, entries take stages from the ring. 4-bit integers need more entries, as their tiles
    // follow one another faster.
    constexpr int kInt4Entries = 4, kFewestEntries = 2;
    // Where epilogue warps take tiles in turn, the tiles of an entry belong to one of them.
    static_assert(kInt4Entries % kEpilogueWarps == 0 && kFewestEntries % kEpilogueWarps == 0 &&
                  kMaxPartialEntries % kEpilogueWarps == 0);
    const bool has_room = left_for_ring(kInt4Entries) >= kFewest * bytes_of_stage;
    layout.partial_entries = shape.batch <= 2         ? kMaxPartialEntries
                             : shape.int4 && has_room ? kInt4Entries
                                                      : kFewestEntries;

    int end = 0;  // behind the ring
    const auto add = [&](std::int64_t bytes) {
        const int first = end;
        end += static_cast<int>(padded(bytes));
        return first;
    };
    layout.input = add(kConsumerWarps * layout.input_bytes);
    layout.partials = add(layout.partial_entries * bytes_of_entry);
    layout.ops = add(bytes_of_ops);
    layout.state = add(sizeof(SharedState));
    // More stages would be loaded while SMs hand words to each other, which then take longer.
    const int most = shape.int4 ? kMaxInt4Stages : kMaxStages;
    layout.stages = std::min(static_cast<int>(left_for_ring(layout.partial_entries) / bytes_of_stage), most);
    require(layout.stages >= kFewest, "decode: ", plan.ops.size(), " ops and ", shape.batch, " sequences leave ",
            std::max(layout.stages, 0), " stages of ", bytes_of_stage, " bytes in shared memory, and the kernel needs ",
            kFewest, ": use fewer sequences");
    layout.in_flight = std::clamp(in_flight_bytes / bytes_of_stage, 1, layout.stages);
    const int ring = layout.stages * bytes_of_stage;
    for (int* offset : {&layout.input, &layout.partials, &layout.ops, &layout.state}) *offset += ring;
    layout.bytes = ring + end;
    return layout;
}

}  // namespace coda::hopper::decode
