// A decode step as the fused kernel runs it: a list of ops, and where their operands are. Host and device, without
// CUDA: hopper::lower (lower.h) makes it from an op list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/hopper/choice/rows.h"
#include "kernels/hopper/decode/plan/fragment.h"

namespace coda::hopper::decode {

/// What an op reads and writes follows from its kind. Its input is the result of the op before.
///   qkv         x -> q, k, v: rstd, a bias or norms of heads, RoPE; the new keys and values into the cache
///   attention   q and the caches -> o
///   attn_out    o -> x: a bias; plus the x that qkv had read
///   gate_up     x -> y: rstd, SwiGLU
///   down        y -> x: plus the x that gate_up had read
///   head        x -> logits: rstd; the largest of each sequence
///   choose      the next token, which the next step's first op reads
enum class OpKind : std::uint8_t { qkv, attention, attn_out, gate_up, down, head, choose };
const char* name_of(OpKind kind);
CODA_HD bool is_gemm(OpKind kind) { return kind != OpKind::attention && kind != OpKind::choose; }
CODA_HD bool has_norm(OpKind kind) { return kind == OpKind::qkv || kind == OpKind::gate_up || kind == OpKind::head; }

/// One entry of the list, which every SM copies to shared memory.
struct DecodeOp {
    const void* weights = nullptr;            // (16 tiles, columns) of a GEMM: bf16, or units
    Bf16 *keys = nullptr, *values = nullptr;  // of the layer: attention, and qkv
    std::int32_t norm = -1;               // of Operands::norms: the weight of the norm before it; -1: none, or folded
    std::int32_t tiles = 0, columns = 0;  // of a GEMM
    std::int16_t rotation = 0;            // own_tiles
    OpKind kind = OpKind::qkv;
    bool embedded : 1 = false;  // layer 0: x is the token's row of the embedding
    bool int4 : 1 = false;      // the weights are 4-bit integers, in units (kernels/math/int4.h); bf16 otherwise
    // Attention and qkv: log2 of the neighbours of the batch that are tokens of one sequence, in one cache.
    std::uint8_t shared_log2 : 3 = 0;

    /// The sequence of the caches that a member of the batch has.
    CODA_HD int cache_of(int member) const { return member >> shared_log2; }
    /// Members before this one that are of the same sequence: its tokens at the positions before.
    CODA_HD int earlier(int member) const { return member & ((1 << shared_log2) - 1); }
};
static_assert(sizeof(DecodeOp) == 40);

/// The sizes of the model and of the batch.
struct Shape {
    int batch = 0;  // S
    int width = 0, feed_forward = 0;
    int heads = 0, kv_heads = 0, head_dim = 0, context = 0;
    int window = 0;  // of positions that a token sees, its own included; `context` where it sees all
    int vocab = 0, padded_vocab = 0;
    bool int4 = false;        // weights may be 4-bit integers
    bool bias = false;        // of q, k and v
    bool out_bias = false;    // of attn_out
    bool head_norms = false;  // of q and k

    /// Whether the model has a window, a bias or norms of heads. Other instances of the kernel serve such models, so
    /// that LLaMA does not pay for them.
    CODA_HD bool extended() const { return window < context || bias || out_bias || head_norms; }
    CODA_HD Slices slices(int columns) const { return slices_of(columns, int4); }
    CODA_HD int group() const { return heads / kv_heads; }
    CODA_HD int q_columns() const { return heads * head_dim; }
    CODA_HD int kv_columns() const { return kv_heads * head_dim; }
    CODA_HD int qkv_columns() const { return q_columns() + 2 * kv_columns(); }
    /// Tiles of q and k.
    CODA_HD int rotated_tiles() const { return (q_columns() + kv_columns()) / kTileRows; }
};

/// A vector in fp32 of every layer, equally far apart, as the parameters of layers lie. An address in each DecodeOp
/// would take 8 bytes per op from the shared memory of every SM.
struct LayerVectors {
    const float* first = nullptr;  // of layer 0
    std::int64_t apart = 0;        // elements

    CODA_HD const float* of(int layer) const { return first + layer * apart; }
};

/// What the kernel reads besides the ops.
struct Operands {
    Shape shape;
    const Bf16* table = nullptr;  // (V, d): the embedding
    std::int64_t table_ld = 0;
    const float* rope = nullptr;   // (context, hd): cos, sin of every pair
    const float* norms = nullptr;  // of matrices of 4-bit integers
    LayerVectors bias;             // (Nq), with Shape::bias
    LayerVectors out_bias;         // (d), with Shape::out_bias
    LayerVectors gain;             // (2, hd), with Shape::head_norms: of q heads and of k heads
    Bf16* logits = nullptr;        // (S, padded V)
    std::int64_t logits_ld = 0;
    ChoiceRows choice;
    float eps = 0;
};

struct DecodePlan {
    std::vector<DecodeOp> ops;
    std::vector<std::int64_t> lds;  // of each op in bf16: elements from one row of the weights to the next
    Operands operands;
    int grid = 0;  // SMs

    /// Whether members of the batch are of one sequence. Other instances of the kernel serve such plans.
    bool shares_caches() const {
        return std::any_of(ops.begin(), ops.end(), [](const DecodeOp& op) { return op.shared_log2 > 0; });
    }
};
/// What a plan has at most: what a LateWait (report.h) can name.
inline constexpr int kMostOps = 1 << 12, kMostSms = 1 << 10;

/// Global memory through which SMs hand vectors to each other, in one of two ways.
///
/// LL words, as in NCCL's LL protocol: a word has 4 bytes of data (two bf16, an fp32 or an i32) and 4 bytes of flag,
/// which is the epoch of the op that wrote it. A reader that sees the epoch has the data. Half of what it loads is
/// flags.
///
/// Lamport buffers, from kLamportFrom sequences on, for the inputs of GEMMs: a buffer holds a slice of every sequence,
/// in the order in which the lanes of a warp load it. Four bytes (two bf16) have arrived as soon as they differ from
/// kEmpty. There are three sets of buffers. Layer n, counted over all steps, writes set n mod 3 and sets the same
/// places of set (n + 2) mod 3 to kEmpty. That set holds the results of layer n - 1: all SMs have read them, since the
/// results of layer n depend on them, and layer n + 2 writes the set next. When an epilogue warp is done with a layer,
/// it stores its arrival: the epoch of the layer's last op. A warp that has seen all arrivals may read, write and empty
/// what the layer wrote and emptied. Epilogue and consumer warps wait for the arrivals at attention.
/// Results that a residual needs are handed over as words too.
///
/// No fence holds the next writer of a place back until all have read it: what it writes depends on what they read.
///
/// Offsets are in words of 8 bytes; all vectors of words but `best` are (S, ...).
struct Exchange {
    std::int64_t qkv = 0;     // Nq / 2
    std::int64_t o = 0;       // H hd / 2
    std::int64_t middle = 0;  // d / 2: x after attn_out
    std::int64_t y = 0;       // f / 2
    std::int64_t x = 0;       // d / 2: x after down
    std::int64_t splits = 0;  // H x kMaxSplits x (hd + 2): sums, maximum and Σ of a split's query head
    // With norms of heads (warps/head_norms.cuh), fp32 in a word. The keys and values of `qkv` are not used then.
    std::int64_t squares = 0;  // (H + Hk) hd / 16: Σ z² of a tile of q or k before the norm
    std::int64_t newest = 0;   // 2 Hk hd: k without its rho, then v
    std::int64_t best = 0;     // per SM and epilogue warp: S x 4: key, id, first bad id, unused
    std::int64_t token = 0;    // S: token, and bit 31 while it runs; then one word: 1 where all are to stop
    // The first set of Lamport buffers: (slices, octets, kLamportSliceBytes), in the slices of the GEMM that reads
    // them.
    std::int64_t o_lamport = 0, middle_lamport = 0, y_lamport = 0, x_lamport = 0;
    std::int64_t lamport = 0, lamport_words = 0;  // where the sets begin, and words of one set
    std::int64_t arrivals = 0;                    // (SMs, kEpilogueWarps) u32
    std::int64_t words = 0;
};
Exchange exchange_of(const Shape& shape, int grid);

/// Where a GEMM's input starts in the exchange: as words, and in the first set of Lamport buffers.
struct InputVector {
    std::int64_t words, lamport;
};
CODA_HD InputVector input_of(const Exchange& exchange, OpKind kind) {
    switch (kind) {
        case OpKind::attn_out: return {exchange.o, exchange.o_lamport};
        case OpKind::gate_up: return {exchange.middle, exchange.middle_lamport};
        case OpKind::down: return {exchange.y, exchange.y_lamport};
        default: return {exchange.x, exchange.x_lamport};
    }
}

/// Shared memory of an SM, in bytes from its start.
struct Layout {
    int stages = 0;     // of the ring, at 0: each stage_bytes
    int in_flight = 0;  // stages that may be loading at the same time
    int input = 0;      // per consumer warp `input_bytes`: slices of a GEMM's input, or AttentionInput
    int input_bytes = 0;
    int partials = 0;  // ring of `partial_entries` tiles, each kConsumerWarps x partial_floats
    int partial_entries = 0, partial_floats = 0;
    int ops = 0;
    int state = 0;  // SharedState
    int bytes = 0;
};
// Of loads per SM at a time. With more of them memory is faster, but hand-overs take longer. Where these have few
// bytes, the best is what memory brings in this time. Both numbers were measured (docs/ATTEMPTS.md).
inline constexpr int kInFlightBytes = 56 * 1024;
inline constexpr double kInFlightSeconds = 2.3e-6;
/// The bytes in flight that are fastest on a GPU of plan.grid SMs.
int fastest_in_flight(const DecodePlan& plan, double memory_bytes_per_s);
/// Throws Error where a model needs more than an SM has.
Layout layout_of(const DecodePlan& plan, int in_flight_bytes = kInFlightBytes);

/// Slices of an op's input that a warp keeps for all of its tiles. 0: it fetches each slice for tiles_together tiles.
CODA_HD int resident_slices(const Slices& slices, int batch) {
    const int kept = 8 * octets_of(batch);  // KB per warp
    return slices.rounds() * batch <= kept ? slices.rounds() : 0;
}
/// Tiles that each_k_tile takes together.
CODA_HD int tiles_together(const Slices& slices, int batch) {
    return resident_slices(slices, batch) > 0 ? 1 : kTilesTogether;
}
/// Bytes from one sequence's input to the next in shared memory, where it comes as words and no weights are 4-bit
/// integers.
CODA_HD int input_pitch(int kept) { return input_pitch_of((kept > 1 ? kept : 1) * kSliceColumns); }
/// Otherwise, and slices are apart.
inline constexpr int kInputPitch = 2 * kSliceColumns + 16;
static_assert(kScalesOffset + 4 * kSliceBlocks / kUnitBlocks <= kInputPitch);

inline constexpr int kLamportFrom = 3;  // sequences
CODA_HD bool uses_lamport(int batch) { return batch >= kLamportFrom; }
/// A pair of NaNs that no conversion makes: cvt turns every NaN into 0x7fff.
inline constexpr std::uint32_t kEmpty = 0xffffffffu;
inline constexpr int kLamportBuffers = 3;
inline constexpr int kLayerOps = 5;  // qkv, attention, attn_out, gate_up, down; then head and choose
CODA_HD int layers_of(int ops) { return ops / kLayerOps; }
/// The set of Lamport buffers that an op of a layer writes.
CODA_HD int lamport_buffer(int layers, int step, int op) { return (step * layers + op / kLayerOps) % kLamportBuffers; }
/// The set that the same op empties, which is written two layers later.
CODA_HD int emptied_buffer(int buffer) { return (buffer + 2) % kLamportBuffers; }

/// A slice of eight sequences in a Lamport buffer consists of vectors of 16 bytes, each with 8 of the 16 columns that a
/// lane takes of a block (fragment.h): block by block, half by half, lane by lane. Vectors of lanes without a sequence
/// are not used.
inline constexpr int kVectorBytes = 16, kLamportVectors = 2 * kSliceBlocks;
inline constexpr int kLamportSliceBytes = kLamportVectors * 32 * kVectorBytes;
/// The byte at which an element lies in its vector's Lamport buffer.
CODA_HD std::int64_t lamport_offset(const Slices& slices, int octets, int sequence, int column) {
    const int slice = column / kBlockColumns / slices.most, in_slice = column - slices.first_column(slice);
    const int vector = in_slice / kBlockColumns * 2 + in_slice % 16 / 8;
    const int lane = 4 * (sequence % kOctet) + in_slice % kBlockColumns / 16;
    return (std::int64_t{slice} * octets + sequence / kOctet) * kLamportSliceBytes +
           (vector * 32 + lane) * kVectorBytes + 2 * (in_slice % 8);
}

}  // namespace coda::hopper::decode
