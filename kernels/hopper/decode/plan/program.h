// A decode step as the fused kernel runs it: a list of stages, and where their operands are. Host and device, without
// CUDA: hopper::lower (lower.h) makes it from an op list.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/hopper/choice/rows.h"
#include "kernels/hopper/decode/plan/fragment.h"

namespace coda::hopper::decode {

/// What a stage reads and writes follows from its kind: its input are the results of the stage before.
///   qkv         x -> q, k, v: rstd, RoPE; the new keys and values into the cache
///   attention   q and the caches -> o
///   attn_out    o -> x: plus the x that qkv had read
///   gate_up     x -> y: rstd, SwiGLU
///   down        y -> x: plus the x that gate_up had read
///   head        x -> logits: rstd; the largest of each sequence
///   choose      the next token, which the next step's first stage reads
enum class StageKind : std::uint8_t { qkv, attention, attn_out, gate_up, down, head, choose };
const char* name_of(StageKind kind);
CODA_HD bool is_product(StageKind kind) { return kind != StageKind::attention && kind != StageKind::choose; }
CODA_HD bool has_norm(StageKind kind) {
    return kind == StageKind::qkv || kind == StageKind::gate_up || kind == StageKind::head;
}

/// One entry of the list, which every SM copies to shared memory.
struct Stage {
    const Bf16* weights = nullptr;            // (16 tiles, columns) of a product
    Bf16 *keys = nullptr, *values = nullptr;  // of the layer: attention, and qkv
    std::int32_t ld = 0;                      // elements from one row of the weights to the next
    std::int32_t tiles = 0, columns = 0;      // of a product
    std::int16_t rotation = 0;                // own_tiles
    StageKind kind = StageKind::qkv;
    bool embedded = false;  // layer 0: x is the token's row of the embedding
};
static_assert(sizeof(Stage) == 40);

/// The sizes of the model and of the batch.
struct Shape {
    int batch = 0;  // S
    int width = 0, feed_forward = 0;
    int heads = 0, kv_heads = 0, head_dim = 0, context = 0;
    int vocab = 0, padded_vocab = 0;

    CODA_HD int group() const { return heads / kv_heads; }
    CODA_HD int q_columns() const { return heads * head_dim; }
    CODA_HD int kv_columns() const { return kv_heads * head_dim; }
    CODA_HD int qkv_columns() const { return q_columns() + 2 * kv_columns(); }
};

/// What the kernel reads besides the stages.
struct Operands {
    Shape shape;
    const Bf16* table = nullptr;  // (V, d): the embedding
    std::int64_t table_ld = 0;
    const float* rope = nullptr;  // (context, hd): cos, sin of every pair
    Bf16* logits = nullptr;       // (S, padded V)
    std::int64_t logits_ld = 0;
    ChoiceRows choice;
    float eps = 0;
};

struct DecodeProgram {
    std::vector<Stage> stages;
    Operands operands;
    int grid = 0;  // SMs
};
/// What a program has at most: what a LateWait (report.h) can name.
inline constexpr int kMostStages = 1 << 12, kMostSms = 1 << 10;

/// Through which SMs hand vectors to each other, in one of two ways.
///
/// Words: a word has 8 bytes, 4 of content (two bf16, an fp32 or an i32) and the epoch of the stage that wrote it.
/// Whoever sees the epoch has the content. But half of what a consumer warp loads are epochs.
///
/// Panels, from kPanelsFrom sequences on, for the inputs of products: a panel holds a slice of every sequence, in the
/// order in which the lanes of a warp load it. Four bytes (two bf16) are there as soon as they are not kEmpty. Layer n,
/// counted over all steps, writes copy n mod 3, and sets the same places of copy (n + 2) mod 3 to kEmpty. That copy
/// holds the results of layer n - 1, which all have read, as layer n's depend on them; layer n + 2 writes it next. An
/// epilogue warp that is done with a layer says so in its arrival: the epoch of the layer's last stage. A warp that has
/// seen all arrivals may read, write and empty what the layer wrote and emptied. Epilogue warps wait for them at
/// attention, consumer warps at attn_out. Results that a residual needs are words too.
///
/// No fence holds a place's next writer back until all have read it: what it writes depends on what they read.
///
/// Offsets are in words; all vectors of words but `best` are (S, ...).
struct Exchange {
    std::int64_t qkv = 0;     // Nq / 2
    std::int64_t o = 0;       // H hd / 2
    std::int64_t middle = 0;  // d / 2: x after attn_out
    std::int64_t y = 0;       // f / 2
    std::int64_t x = 0;       // d / 2: x after down
    std::int64_t splits = 0;  // H x kMaxSplits x (hd + 2): sums, maximum and Σ of a split's query head
    std::int64_t best = 0;    // per SM and epilogue warp: S x 4: key, id, first bad id, unused
    std::int64_t token = 0;   // S: token, and bit 31 while it runs; then one word: 1 where all are to stop
    // Panels of the first copy: (slices, kPanelBytes), in the slices of the product that reads them.
    std::int64_t o_panels = 0, middle_panels = 0, y_panels = 0, x_panels = 0;
    std::int64_t panels = 0, panel_words = 0;  // where they begin, and words of a copy of all four
    std::int64_t arrivals = 0;                 // (SMs, kEpilogueWarps) u32
    std::int64_t words = 0;
};
Exchange exchange_of(const Shape& shape, int grid);

/// Where a product's input starts in the exchange: as words, and as panels.
struct InputVector {
    std::int64_t words, panels;
};
CODA_HD InputVector input_of(const Exchange& exchange, StageKind kind) {
    switch (kind) {
        case StageKind::attn_out: return {exchange.o, exchange.o_panels};
        case StageKind::gate_up: return {exchange.middle, exchange.middle_panels};
        case StageKind::down: return {exchange.y, exchange.y_panels};
        default: return {exchange.x, exchange.x_panels};
    }
}

/// Shared memory of an SM, in bytes from its start.
struct Layout {
    int chunks = 0;     // of the ring, at 0
    int in_flight = 0;  // chunks that may be on their way at a time
    int input = 0;      // per consumer warp: `input_bytes`
    int input_bytes = 0;
    int parts = 0;  // ring of `part_entries` tiles, each kConsumerWarps x part_floats
    int part_entries = 0, part_floats = 0;
    int attention = 0;  // one unit: kConsumerWarps x attention_floats
    int attention_floats = 0;
    int stages = 0;
    int state = 0;  // KernelState
    int bytes = 0;
};
/// Throws Error where a model needs more than an SM has.
Layout layout_of(const DecodeProgram& program, int in_flight_bytes = 56 * 1024);

/// Slices of a stage's input that a warp keeps for all of its tiles; 0: it fetches each, for tiles_together tiles.
CODA_HD int resident_slices(const Slices& slices, int batch) {
    constexpr int kKept = 8;  // KB per warp
    return slices.rounds() * batch <= kKept ? slices.rounds() : 0;
}
/// Tiles at a time: each_chunk.
CODA_HD int tiles_together(const Slices& slices, int batch) {
    return resident_slices(slices, batch) > 0 ? 1 : kTilesTogether;
}
/// Bytes from one sequence's input to the next, of words.
CODA_HD int input_pitch(int kept) { return input_pitch_of((kept > 1 ? kept : 1) * kSliceColumns); }

inline constexpr int kPanelsFrom = 3;  // sequences
CODA_HD bool has_panels(int batch) { return batch >= kPanelsFrom; }
/// A pair of NaNs that no conversion makes: cvt turns every NaN into 0x7fff.
inline constexpr std::uint32_t kEmpty = 0xffffffffu;
inline constexpr int kPanelCopies = 3;
inline constexpr int kLayerStages = 5;  // qkv, attention, attn_out, gate_up, down; then head and choose
/// The copy of the panels that a stage of a layer writes; `stages` of the whole list.
CODA_HD int panel_copy(int stages, int token, int stage) {
    return (token * (stages / kLayerStages) + stage / kLayerStages) % kPanelCopies;
}
/// The copy that the same stage empties: of two layers later.
CODA_HD int emptied_copy(int copy) { return (copy + 2) % kPanelCopies; }

/// A panel consists of units of 16 bytes, 8 of the 16 columns that a lane takes of a block (fragment.h): block by
/// block, half by half, lane by lane. Those of lanes without a sequence are not used.
inline constexpr int kUnitBytes = 16, kPanelUnits = 2 * kSliceBlocks;
inline constexpr int kPanelBytes = kPanelUnits * 32 * kUnitBytes;
/// Where in the panels of a vector an element lies, in bytes.
CODA_HD std::int64_t panel_offset(const Slices& slices, int sequence, int column) {
    const int slice = column / kBlockColumns / slices.most, in_slice = column - slices.first_column(slice);
    const int unit = in_slice / kBlockColumns * 2 + in_slice % 16 / 8;
    const int lane = 4 * sequence + in_slice % kBlockColumns / 16;
    return std::int64_t{slice} * kPanelBytes + (unit * 32 + lane) * kUnitBytes + 2 * (in_slice % 8);
}
/// Bytes from one sequence's part of a panel to the next, as a warp keeps it in shared memory.
inline constexpr int kInputPitch = 2 * kSliceColumns + 16;

}  // namespace coda::hopper::decode
