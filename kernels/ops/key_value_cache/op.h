// The cache of keys and values of sequences that grow token by token, and attention over it. Notation: kernels/ops.h.
//
// S sequences lie side by side, each with room for C = context positions. A cache is (S Hk C, hd): row (s Hk + h) C + p
// has position p of key/value head h of sequence s, so the positions of a head are contiguous. Keys are stored after
// RoPE.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// Stores keys and values of consecutive tokens of one sequence in its cache: row m of qkv becomes position first + m,
/// for m < count. The rows from `count` on are padding. Everything else in the caches stays unchanged.
struct StoreKeyValue {
    In<Matrix> qkv;            // (M, Nq) storage, [q heads | k heads | v heads], after RoPE
    In<Vector> place;          // (1, 3) i32: sequence, first, count; count <= M, first + count <= C
    InOut<Matrix> keys;        // (S Hk C, hd) storage
    InOut<Matrix> values;      // (S Hk C, hd) storage
    std::int64_t context = 0;  // C
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::tolerance};
    static constexpr const char* name = "StoreKeyValue";
    static constexpr auto operands =
        fields(field("qkv", &StoreKeyValue::qkv), field("place", &StoreKeyValue::place),
               field("keys", &StoreKeyValue::keys), field("values", &StoreKeyValue::values));

    double flops() const { return 0; }
    /// The keys and values of qkv count, which are written once; an InOut operand counts twice.
    std::int64_t bytes_of(const View& operand) const {
        const std::int64_t half = qkv.rows * kv_heads * head_dim * size_of(qkv.dtype);
        if (&operand == &qkv) return 2 * half;
        return &operand == &place ? place.bytes() : half / 2;
    }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

/// Attention of the newest tokens of sequences, of which each has R rows of qkv: row m is a token of sequence m / R, at
/// position n - 1 where n = lengths[m]. Its key and value are stored there, and o = softmax(q kᵀ / sqrt(hd)) v per
/// query head over positions [0, n) or, with a window of W, the last W of them. Query head h reads key/value head h /
/// (H / Hk). A row with n = 0 is idle: it stores nothing, and its row of o is 0. The rows of a sequence that are not
/// idle come first, each one token longer than the row before. All are stored before any is attended to.
///
/// Sums have an order that depends only on n, so a row has the same bits in any batch.
struct DecodeAttention {
    In<Matrix> qkv;            // (R S, Nq) storage, [q heads | k heads | v heads], after RoPE
    In<Vector> lengths;        // (1, R S) i32, in [0, C]
    InOut<Matrix> keys;        // (S Hk C, hd) storage
    InOut<Matrix> values;      // (S Hk C, hd) storage
    Out<Matrix> o;             // (R S, H hd) storage
    InOut<Scratch> scratch;    // results of the parts into which a Hopper GPU splits the positions
    std::int64_t context = 0;  // C
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t window = 0;     // W, of positions that a token sees, its own included; 0: all
    std::int64_t rows_each = 1;  // R

    static constexpr Traits traits{Trait::work,           Trait::flops,         Trait::bytes_of,
                                   Trait::position_bytes, Trait::scratch_bytes, Trait::tolerance};
    static constexpr const char* name = "DecodeAttention";
    static constexpr auto operands =
        fields(field("qkv", &DecodeAttention::qkv), field("lengths", &DecodeAttention::lengths),
               field("keys", &DecodeAttention::keys), field("values", &DecodeAttention::values),
               field("o", &DecodeAttention::o), field("scratch", &DecodeAttention::scratch));

    /// Positions that one block of a Hopper GPU takes.
    static constexpr std::int64_t kSplit = 256;

    static constexpr Work work = Work::attention;
    /// The most positions that a token sees.
    std::int64_t most_positions() const { return window > 0 && window < context ? window : context; }
    /// Counts two products at a full context: only a run knows what lengths hold.
    double flops() const {
        return 4.0 * static_cast<double>(qkv.rows) * static_cast<double>(most_positions()) *
               static_cast<double>(heads) * static_cast<double>(head_dim);
    }
    /// Every position of a full context that the newest token sees is read, but its own, which is written; an InOut
    /// operand counts twice.
    std::int64_t bytes_of(const View& operand) const {
        const bool cache = &operand == &keys || &operand == &values;
        return cache ? operand.bytes() / context * most_positions() / 2 : operand.bytes();
    }
    /// Bytes of keys and values per position of a sequence.
    std::int64_t position_bytes() const { return kv_heads * head_dim * (size_of(keys.dtype) + size_of(values.dtype)); }
    /// Per part of the positions and query head: Σ p v, the largest logit and Σ p, in fp32.
    std::int64_t scratch_bytes() const {
        if (qkv.dtype != DType::bf16) return 0;
        return qkv.rows * heads * ceil_div(context, kSplit) * (head_dim + 2) * size_of(DType::f32);
    }
    /// keys and values are copies. o: fp32 arithmetic, rounded once to its type.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        return operand == "o" ? std::nullopt : std::optional(kExact);
    }
};

}  // namespace coda
