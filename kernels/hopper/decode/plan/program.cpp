#include "kernels/hopper/decode/plan/program.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "kernels/hopper/decode/plan/attention_input.h"
#include "kernels/hopper/decode/plan/attention_work.h"
#include "kernels/hopper/decode/plan/state.h"
#include "kernels/hopper/sm90/limits.h"

namespace coda::hopper::decode {

const char* name_of(StageKind kind) {
    switch (kind) {
        case StageKind::qkv: return "qkv";
        case StageKind::attention: return "attention";
        case StageKind::attn_out: return "attn_out";
        case StageKind::gate_up: return "gate_up";
        case StageKind::down: return "down";
        case StageKind::head: return "head";
        case StageKind::choose: return "choose";
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
    exchange.best = add(std::int64_t{grid} * kEpilogueWarps * batch * 4);
    exchange.token = add(batch + 1);
    if (!has_panels(shape.batch)) return exchange;
    const auto add_panels = [&](int columns) { return add(slices_of(columns).number * std::int64_t{kPanelBytes} / 8); };
    exchange.panels = exchange.words;
    exchange.o_panels = add_panels(shape.q_columns());
    exchange.middle_panels = add_panels(shape.width);
    exchange.y_panels = add_panels(shape.feed_forward);
    exchange.x_panels = add_panels(shape.width);
    exchange.panel_words = exchange.words - exchange.panels;
    exchange.words += (kPanelCopies - 1) * exchange.panel_words;
    exchange.arrivals = add(std::int64_t{grid} * kEpilogueWarps / 2);
    return exchange;
}

Layout layout_of(const DecodeProgram& program, int in_flight_bytes) {
    const Shape& shape = program.operands.shape;
    Layout layout;
    for (const Stage& stage : program.stages) {
        if (!is_product(stage.kind)) continue;
        const int kept = resident_slices(slices_of(stage.columns), shape.batch);
        const int bytes = shape.batch * (has_panels(shape.batch) ? std::max(kept, 1) * kInputPitch : input_pitch(kept));
        layout.input_bytes = std::max(layout.input_bytes, bytes);
    }
    layout.input_bytes = std::max(layout.input_bytes, AttentionInput::bytes(shape.head_dim));
    layout.part_entries = shape.batch <= 2 ? kMaxPartEntries : kMaxPartEntries / 2;
    layout.part_floats = (kTileRows + 1) * shape.batch;
    layout.attention_floats = shape.group() * shape.head_dim + 2 * kMaxGroup;

    int end = 0;  // behind the ring
    const auto add = [&](std::int64_t bytes) {
        const int first = end;
        end += static_cast<int>(round_up(bytes, 128));
        return first;
    };
    layout.input = add(kConsumerWarps * layout.input_bytes);
    layout.parts = add(4LL * layout.part_entries * kConsumerWarps * layout.part_floats);
    layout.attention = add(4LL * kConsumerWarps * layout.attention_floats);
    layout.stages = add(static_cast<std::int64_t>(program.stages.size() * sizeof(Stage)));
    layout.state = add(sizeof(KernelState));
    layout.chunks = std::min((kMaxSharedBytes - end) / kChunkBytes, kMaxChunks);
    // With fewer, a load would wait for the MMAs on the chunk before it.
    constexpr int kFewest = 3;
    require(layout.chunks >= kFewest, "decode: ", program.stages.size(), " stages and ", shape.batch,
            " sequences leave ", std::max(layout.chunks, 0), " chunks of ", kChunkBytes,
            " bytes in shared memory, and the kernel needs ", kFewest, ": use fewer sequences");
    layout.in_flight = std::clamp(in_flight_bytes / kChunkBytes, 1, layout.chunks);
    const int ring = layout.chunks * kChunkBytes;
    for (int* offset : {&layout.input, &layout.parts, &layout.attention, &layout.stages, &layout.state})
        *offset += ring;
    layout.bytes = ring + end;
    return layout;
}

}  // namespace coda::hopper::decode
