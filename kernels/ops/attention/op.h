// Causal grouped-query attention and its gradients. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/error.h"
#include "kernels/core/op.h"

namespace coda {

/// The pairs of a query and a key that it sees, of `rows` tokens in sequences of T: half the square of a sequence or,
/// in a window of W keys, W T less half the square of W.
constexpr double visible_pairs(std::int64_t rows, std::int64_t seq_len, std::int64_t window) {
    const auto m = static_cast<double>(rows), t = static_cast<double>(seq_len), w = static_cast<double>(window);
    return window > 0 && window < seq_len ? m * (w - w * w / (2 * t)) : m * t / 2;
}

/// Causal grouped-query attention: o = softmax(q kᵀ / sqrt(hd)) v per head; query t of a sequence sees keys
/// [doc_start[t], t], or [0, t] without doc_start. Query head h reads key/value head h / (H / Hk).
///
/// doc_start is where the row's document starts, as a position in the sequence, or the first key of the row's window if
/// that comes later: with a window of W keys, the row's own included, max(start, t - W + 1). It does not decrease along
/// a sequence. `window` only says so to cost(). The codes of o are made from o as storage has it, as QuantiseF8 makes
/// them.
struct Attention {
    In<Matrix> qkv;            // (M, Nq) storage, [q heads | k heads | v heads], after RoPE
    In<Vector> doc_start;      // (1, M) i32, optional: the first key that the row sees
    Out<Matrix> o;             // (M, H hd) storage
    Rounded o_codes;           // optional: (M, H hd) f8e4m3, and transposed, which may be absent
    Out<Matrix> lse;           // (H, M) statistic: natural log of Σ exp(q k / sqrt(hd))
    InOut<Scalar> next_tile;   // i32, for a Hopper GPU: how many tiles its blocks have drawn; 0 before and after
    std::int64_t seq_len = 0;  // T; M = B T
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t window = 0;  // W, which doc_start has in it; 0: none

    static constexpr Traits traits{Trait::work, Trait::flops, Trait::tolerance};
    static constexpr const char* name = "Attention";
    static constexpr RoundedNames o_names{"o_scale", "o_f8", "o_f8_t", "o_amax"};
    static constexpr auto operands = fields(field("qkv", &Attention::qkv), field("doc_start", &Attention::doc_start),
                                            field("o", &Attention::o), field(o_names, &Attention::o_codes),
                                            field("lse", &Attention::lse), field("next_tile", &Attention::next_tile));

    static constexpr Work work = Work::attention;
    double flops() const {
        return 4.0 * visible_pairs(qkv.rows, seq_len, window) * static_cast<double>(heads) *
               static_cast<double>(head_dim);
    }
    /// o: P is rounded to bf16 as an operand of the second GEMM. Where a query sees few keys, this error is as large as
    /// the error of storing o; where it sees many, the error averages out.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        if (operand == "o") return Tolerance{4e-3, 1e-2};
        if (operand == "o_f8" || operand == "o_f8_t" || operand == "o_amax") return kExact;  // next to o
        return std::nullopt;
    }
};

/// Gradients of Attention with respect to qkv. delta = Σ_head o ⊙ dout is given (LinearHeadDot) or computed from o:
///   p = exp(q k / sqrt(hd) - lse); dv = pᵀ dout; ds = p (dout vᵀ - delta) / sqrt(hd); dq = ds k; dk = dsᵀ q;
///   dqkv = (dq, dk, dv) rstd, where rstd belongs to the norm before the GEMM that computed qkv. LinearRmsBackward and
///   WeightGradient expect this factor in dqkv.
/// With dot, per head dot = Σ qkv ⊙ dqkv.
/// With rope, qkv is as LinearRope stored it, and dqkv is the gradient before the rotation: pairs of q and k columns
/// are rotated back, (du, dv) -> (du cos + dv sin, dv cos - du sin), after dot is summed. Without rope nothing was
/// rotated, as with learned positions.
/// With gain, q and k heads had a norm before the rotation (LinearRope), and dqkv is the gradient before that norm. Per
/// head, with ẑ = rho pre and dn, the gradient that is rotated back, without the factor rstd:
///   c = (1/hd) Σ gain ⊙ ẑ ⊙ dn;  dqkv = rho (gain ⊙ dn - c ẑ) rstd;  dot = eps rho² hd c rstd
/// This dot is Σ pre ⊙ dqkv: the result of a norm depends on the size of its operand only by eps. dgain is Σ dn ⊙ ẑ
/// over kSumRows rows of a sequence, in row (head B + b) ceil(T / kSumRows) + tile, q heads before k heads.
/// With bias, qkv is as LinearRope stored it with this bias, which the norm before the GEMM does not see: dot is
/// Σ (qkv - bias) ⊙ dqkv, in the basis before the rotation. dbias is Σ dqkv / rstd over kSumRows rows of a sequence,
/// before rounding, in row b ceil(T / kSumRows) + tile.
/// Codes of dqkv are made from dqkv as storage has it, as QuantiseF8 makes them.
struct AttentionBackward {
    In<Matrix> qkv;        // (M, Nq) storage
    In<Matrix> o;          // (M, H hd) storage; absent where delta is given
    In<Matrix> dout;       // (M, H hd) storage
    In<Matrix> lse;        // (H, M) statistic
    In<Matrix> delta;      // (H, M) statistic; absent where o is given
    In<Vector> positions;  // (1, M) i32, with rope
    In<Matrix> rope;       // (positions, hd) statistic, optional, only with dot; with it positions
    In<Vector> rstd;       // (1, M) statistic, optional (absent: 1), only with dot
    In<Vector> doc_start;  // (1, M) i32, optional: the first key that the row sees, as Attention takes it
    In<Matrix> gain;       // (2, hd) master, optional: of q heads and of k heads; only with rope, with pre, rho, dgain
    In<Matrix> pre;        // (M, (H + Hk) hd) storage: q and k before their norm
    In<Matrix> rho;        // (H + Hk, M) statistic
    In<Vector> bias;       // (1, Nq) master, optional: only with dot and without gain, with dbias
    Result dqkv;           // (M, Nq) storage; or codes by rows and transposed, f8e5m2
    Out<Partials> dot;     // (H + 2 Hk, M) statistic, optional; from dq, dk, dv before rounding
    Out<Partials> dgain;   // ((H + Hk) sum_tiles(), hd) statistic
    Out<Partials> dbias;   // (sum_tiles(), Nq) statistic
    InOut<Scratch> scratch;
    std::int64_t seq_len = 0;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t window = 0;  // W, which doc_start has in it; 0: none
    double eps = 0;           // with gain

    static constexpr RoundedNames dqkv_names{"dqkv_scale", "dqkv", "dqkv_t", "dqkv_amax"};
    static constexpr std::int64_t kSumRows = 64;
    /// Partials of dbias, and of dgain for each head.
    static constexpr std::int64_t sum_tiles(std::int64_t tokens, std::int64_t seq_len) {
        return tokens / seq_len * ceil_div(seq_len, kSumRows);
    }

    static constexpr Traits traits{Trait::work, Trait::flops, Trait::scratch_bytes, Trait::tolerance, Trait::part_of};
    static constexpr const char* name = "AttentionBackward";
    static constexpr auto operands =
        fields(field("qkv", &AttentionBackward::qkv), field("o", &AttentionBackward::o),
               field("dout", &AttentionBackward::dout), field("lse", &AttentionBackward::lse),
               field("delta", &AttentionBackward::delta), field("positions", &AttentionBackward::positions),
               field("rope", &AttentionBackward::rope), field("rstd", &AttentionBackward::rstd),
               field("doc_start", &AttentionBackward::doc_start), field("gain", &AttentionBackward::gain),
               field("pre", &AttentionBackward::pre), field("rho", &AttentionBackward::rho),
               field("bias", &AttentionBackward::bias), field(dqkv_names, &AttentionBackward::dqkv),
               field("dot", &AttentionBackward::dot), field("dgain", &AttentionBackward::dgain),
               field("dbias", &AttentionBackward::dbias), field("scratch", &AttentionBackward::scratch));

    static constexpr Work work = Work::attention;
    /// Five GEMMs where the forward pass has two, as Q Kᵀ is recomputed.
    double flops() const {
        return 2.5 * 4.0 * visible_pairs(qkv.rows, seq_len, window) * static_cast<double>(heads) *
               static_cast<double>(head_dim);
    }
    std::int64_t scratch_bytes() const;

    /// dq, dk, dv: P and dS are rounded to bf16 as operands of the second GEMMs, and the result is rounded when it is
    /// stored. That makes two RMS errors of up to 2.3e-3 each, added in quadrature, and half as much again for margin.
    /// A row of dS sums to zero, so the terms of dq cancel for keys with a common part, but the errors of their factors
    /// do not: dq and dk are measured against their terms.
    static constexpr Tolerance kGradient{5e-3, 1.5e-2};
    /// dot sums qkv ⊙ dqkv over a head, dgain g ⊙ ẑ and dbias dqkv over rows, with the errors of the gradient's
    /// factors: the same bounds, and room for terms that cancel.
    static constexpr Tolerance kDot{1e-2, 2e-2};
    /// dqkv as codes by rows: half a step of e5m2, 2^-3 of an element and 5.3e-2 RMS, and what the element is off by.
    static constexpr Tolerance kCodes{6e-2, 1.4e-1};
    /// dqkv_amax is one element's, not an RMS.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType dtype) {
        if (operand == "dqkv_t") return kExact;  // next to dqkv
        if (operand == "dqkv_amax") return Tolerance{kGradient.largest, kGradient.largest};
        if (is_f8(dtype)) return kCodes;
        return operand == "dot" || operand == "dgain" || operand == "dbias" ? kDot : kGradient;
    }
    static constexpr std::string_view part_of(std::string_view part) {
        return part == "dq" || part == "dk" || part == "dv" ? "dqkv" : part;
    }
};

/// Throws Error where operands that go together are not there together.
inline void require_together(const AttentionBackward& op) {
    require(static_cast<bool>(op.o) != static_cast<bool>(op.delta), op.name, ": takes o or delta, one of them");
    require(op.dot || (!op.rope && !op.rstd && !op.bias), op.name,
            ": rope, rstd and bias come with dot, which is missing");
    require(op.rope || (!op.positions && !op.gain), op.name, ": positions and gain come with rope, which is missing");
    require(op.gain || (!op.pre && !op.rho && !op.dgain), op.name,
            ": pre, rho and dgain come with gain, which is missing");
    require(op.bias || !op.dbias, op.name, ": dbias comes with bias, which is missing");
    require(!op.bias || !op.gain, op.name, ": takes gain or bias, not both");
    require(static_cast<bool>(op.dqkv) != static_cast<bool>(op.dqkv.codes), op.name,
            ": writes dqkv to storage or as codes, one of them");
}

}  // namespace coda
