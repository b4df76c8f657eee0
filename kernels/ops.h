// The instruction set: one plain struct per operation of the forward, backward and optimizer schedule.
//
// An op is operands with shapes and the constants of its formula; it has no behaviour. Four interpreters give it one:
// cpu::run, hopper::prepare/launch, cost and oracle::check. Formulas: CODA ("Rewriting Transformer Blocks as
// GEMM-Epilogue Programs", arXiv 2605.19269), re-derived in the comments below; K1..K10 are that paper's kernels.
//
// Notation. M = B*T tokens of a micro-batch (row m = b*T + t); d model width, f feed-forward width, V padded
// vocabulary, H query heads, Hk key/value heads, hd head dimension, Nq = (H + 2 Hk) hd. All matrices row-major. acc is
// the GEMM's accumulator; a vector over rows broadcasts along columns and the other way round. "storage", "statistic",
// "gradient" and "master" are the roles of Precision (dtype.h). Every stored element is rounded once, from the
// accumulator's type.
//
// Partials are tile-major, (tiles, rows) or (tiles, columns), one entry per tile of width `tile` (data of the op,
// chosen by tiling.h; the last tile may be ragged). They are summed in order of the tile by a Finish op.
#pragma once

#include <cstdint>
#include <tuple>
#include <variant>
#include <vector>

#include "kernels/operand.h"

namespace coda {

/// How a GEMM reads its weight. Neither needs a transposed copy.
enum class WeightLayout : std::uint8_t {
    out_in,  // w is (N, K): acc = a wᵀ, the forward product
    in_out,  // w is (K, N): acc = a w, the product of dgrad
};

/// An operand of op type T under its field name.
template <class T, class Member>
struct Field {
    const char* name;
    Member T::*member;
};
template <class T, class Member>
constexpr Field<T, Member> field(const char* name, Member T::*member) {
    return {name, member};
}

// ---------------------------------------------------------------------------------------------------------------
// Forward
// ---------------------------------------------------------------------------------------------------------------

/// x = table[token]; h = x ⊙ gamma; rstd = 1/sqrt(mean x² + eps). Rows with a token outside the table are an error of
/// the caller (the loader checks every id).
struct Embed {
    In<Vector> tokens;  // (1, M) i32
    In<Matrix> table;   // (V, d) storage
    In<Vector> gamma;   // (1, d) master
    Out<Matrix> x;      // (M, d) storage
    Out<Matrix> h;      // (M, d) storage
    Out<Vector> rstd;   // (1, M) statistic, from x before any rounding of its own
    double eps = 0;

    static constexpr const char* name = "Embed";
    static constexpr auto operands =
        std::tuple{field("tokens", &Embed::tokens), field("table", &Embed::table), field("gamma", &Embed::gamma),
                   field("x", &Embed::x),           field("h", &Embed::h),         field("rstd", &Embed::rstd)};
};

/// out = acc, or out += acc.
struct Linear {
    In<Matrix> a;            // (M, K) storage
    In<Matrix> w;            // (N, K) or (K, N) storage, see layout
    Accumulate<Matrix> out;  // (M, N) storage or gradient
    WeightLayout layout = WeightLayout::out_in;

    static constexpr const char* name = "Linear";
    static constexpr auto operands =
        std::tuple{field("a", &Linear::a), field("w", &Linear::w), field("out", &Linear::out)};
};

/// K1: adjacent column pairs of the first `rotated` columns turn by the angle of (position, pair in head):
/// (u, v) -> (u cos - v sin, v cos + u sin), the LLaMA sign. Further columns (v heads) are stored as they are.
struct LinearRope {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> w;              // (N, K) storage
    In<Vector> positions;      // (1, M) i32, each < rows of rope
    In<Matrix> rope;           // (positions, hd) statistic: columns 2i, 2i+1 = cos, sin of pair i
    Out<Matrix> out;           // (M, N) storage
    std::int64_t rotated = 0;  // (H + Hk) hd
    std::int64_t head_dim = 0;

    static constexpr const char* name = "LinearRope";
    static constexpr auto operands =
        std::tuple{field("a", &LinearRope::a), field("w", &LinearRope::w), field("positions", &LinearRope::positions),
                   field("rope", &LinearRope::rope), field("out", &LinearRope::out)};
};

/// K2: w has gate and up rows interleaved, so columns 2i, 2i+1 of acc are (g, u): z = acc, y = silu(g) u.
struct LinearSwiglu {
    In<Matrix> a;   // (M, K) storage
    In<Matrix> w;   // (2f, K) storage
    Out<Matrix> z;  // (M, 2f) storage
    Out<Matrix> y;  // (M, f) storage

    static constexpr const char* name = "LinearSwiglu";
    static constexpr auto operands = std::tuple{field("a", &LinearSwiglu::a), field("w", &LinearSwiglu::w),
                                                field("z", &LinearSwiglu::z), field("y", &LinearSwiglu::y)};
};

/// K3: logits = acc; per row and tile the pair (max, Σ exp(logit - max)) over columns < vocab; the target's logit
/// before rounding. A row whose target is negative (ignored) leaves target_logit unwritten; columns >= vocab are stored
/// as 0.
struct LinearCrossEntropy {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> w;              // (V, K) storage
    In<Vector> targets;        // (1, M) i32, < 0: ignored
    Out<Matrix> logits;        // (M, V) storage, optional
    Out<Partials> lse;         // (tiles over V, 2 M) statistic: pairs (max, sum)
    Out<Vector> target_logit;  // (1, M) statistic
    std::int64_t vocab = 0;    // valid columns, <= V
    std::int64_t tile = 0;     // columns per pair

    static constexpr const char* name = "LinearCrossEntropy";
    static constexpr auto operands = std::tuple{field("a", &LinearCrossEntropy::a),
                                                field("w", &LinearCrossEntropy::w),
                                                field("targets", &LinearCrossEntropy::targets),
                                                field("logits", &LinearCrossEntropy::logits),
                                                field("lse", &LinearCrossEntropy::lse),
                                                field("target_logit", &LinearCrossEntropy::target_logit)};
};

/// K4: x = acc + residual; h = x ⊙ gamma; per row and tile Σ x². Closes a residual branch and opens the next norm: the
/// next norm's 1/rms is one factor per row, so it commutes with the next GEMM and is applied there.
struct LinearResidualRms {
    In<Matrix> a;          // (M, K) storage
    In<Matrix> w;          // (N, K) storage
    In<Matrix> residual;   // (M, N) storage
    In<Vector> gamma;      // (1, N) master
    Out<Matrix> x;         // (M, N) storage
    Out<Matrix> h;         // (M, N) storage
    Out<Partials> square;  // (tiles over N, M) statistic, from x before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearResidualRms";
    static constexpr auto operands = std::tuple{field("a", &LinearResidualRms::a),
                                                field("w", &LinearResidualRms::w),
                                                field("residual", &LinearResidualRms::residual),
                                                field("gamma", &LinearResidualRms::gamma),
                                                field("x", &LinearResidualRms::x),
                                                field("h", &LinearResidualRms::h),
                                                field("square", &LinearResidualRms::square)};
};

/// K5: out = acc rstd.
struct LinearRstd {
    In<Matrix> a;     // (M, K) storage
    In<Matrix> w;     // (N, K) storage
    In<Vector> rstd;  // (1, M) statistic
    Out<Matrix> out;  // (M, N) storage

    static constexpr const char* name = "LinearRstd";
    static constexpr auto operands = std::tuple{field("a", &LinearRstd::a), field("w", &LinearRstd::w),
                                                field("rstd", &LinearRstd::rstd), field("out", &LinearRstd::out)};
};

/// K6: K2 on acc rstd. z is stored after the rstd factor: the backward statistic Σ z dz needs it so. `z` may be absent
/// (evaluation, recompute): then only y is stored.
struct LinearRstdSwiglu {
    In<Matrix> a;     // (M, K) storage
    In<Matrix> w;     // (2f, K) storage
    In<Vector> rstd;  // (1, M) statistic
    Out<Matrix> z;    // (M, 2f) storage, optional
    Out<Matrix> y;    // (M, f) storage, optional

    static constexpr const char* name = "LinearRstdSwiglu";
    static constexpr auto operands = std::tuple{field("a", &LinearRstdSwiglu::a), field("w", &LinearRstdSwiglu::w),
                                                field("rstd", &LinearRstdSwiglu::rstd),
                                                field("z", &LinearRstdSwiglu::z), field("y", &LinearRstdSwiglu::y)};
};

/// K7: K1 on acc rstd.
struct LinearRstdRope {
    In<Matrix> a;          // (M, K) storage
    In<Matrix> w;          // (Nq, K) storage
    In<Vector> rstd;       // (1, M) statistic
    In<Vector> positions;  // (1, M) i32
    In<Matrix> rope;       // (positions, hd) statistic
    Out<Matrix> out;       // (M, Nq) storage, columns [q heads | k heads | v heads]
    std::int64_t rotated = 0;
    std::int64_t head_dim = 0;

    static constexpr const char* name = "LinearRstdRope";
    static constexpr auto operands =
        std::tuple{field("a", &LinearRstdRope::a),       field("w", &LinearRstdRope::w),
                   field("rstd", &LinearRstdRope::rstd), field("positions", &LinearRstdRope::positions),
                   field("rope", &LinearRstdRope::rope), field("out", &LinearRstdRope::out)};
};

/// K8: K3 on acc rstd.
struct LinearRstdCrossEntropy {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> w;              // (V, K) storage
    In<Vector> rstd;           // (1, M) statistic
    In<Vector> targets;        // (1, M) i32, < 0: ignored
    Out<Matrix> logits;        // (M, V) storage, optional
    Out<Partials> lse;         // (tiles over V, 2 M) statistic: pairs (max, sum)
    Out<Vector> target_logit;  // (1, M) statistic
    std::int64_t vocab = 0;
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearRstdCrossEntropy";
    static constexpr auto operands = std::tuple{field("a", &LinearRstdCrossEntropy::a),
                                                field("w", &LinearRstdCrossEntropy::w),
                                                field("rstd", &LinearRstdCrossEntropy::rstd),
                                                field("targets", &LinearRstdCrossEntropy::targets),
                                                field("logits", &LinearRstdCrossEntropy::logits),
                                                field("lse", &LinearRstdCrossEntropy::lse),
                                                field("target_logit", &LinearRstdCrossEntropy::target_logit)};
};

/// rstd = 1/sqrt(Σ_tiles square / width + eps).
struct FinishRstd {
    In<Partials> square;     // (tiles, M) statistic
    Out<Vector> rstd;        // (1, M) statistic
    std::int64_t width = 0;  // d, the width of the normalised vector
    double eps = 0;

    static constexpr const char* name = "FinishRstd";
    static constexpr auto operands = std::tuple{field("square", &FinishRstd::square), field("rstd", &FinishRstd::rstd)};
};

/// Causal grouped-query attention: o = softmax(q kᵀ / sqrt(hd)) v per head; query t of a sequence sees keys
/// [doc_start[t], t], or [0, t] without doc_start. Query head h reads key/value head h / (H / Hk).
struct Attention {
    In<Matrix> qkv;        // (M, Nq) storage, [q heads | k heads | v heads], after RoPE
    In<Vector> doc_start;  // (1, M) i32, optional: position in its sequence of the first token of the row's document
    Out<Matrix> o;         // (M, H hd) storage
    Out<Matrix> lse;       // (H, M) statistic: natural log of Σ exp(q k / sqrt(hd))
    std::int64_t seq_len = 0;  // T; M = B T
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

    static constexpr const char* name = "Attention";
    static constexpr auto operands =
        std::tuple{field("qkv", &Attention::qkv), field("doc_start", &Attention::doc_start), field("o", &Attention::o),
                   field("lse", &Attention::lse)};
};

/// lse = log Σ_tiles sum exp(max - m) + m with m the largest max; loss = lse - target_logit, 0 where the target is
/// ignored (selected, never multiplied by a mask: an ignored row's target_logit was never written).
struct FinishCrossEntropy {
    In<Partials> partials;    // (tiles, 2 M) statistic: pairs (max, sum)
    In<Vector> target_logit;  // (1, M) statistic
    In<Vector> targets;       // (1, M) i32
    Out<Vector> lse;          // (1, M) statistic
    Out<Vector> loss;         // (1, M) statistic

    static constexpr const char* name = "FinishCrossEntropy";
    static constexpr auto operands = std::tuple{
        field("partials", &FinishCrossEntropy::partials), field("target_logit", &FinishCrossEntropy::target_logit),
        field("targets", &FinishCrossEntropy::targets), field("lse", &FinishCrossEntropy::lse),
        field("loss", &FinishCrossEntropy::loss)};
};

/// total (+)= alpha Σ_m loss, in a fixed order.
struct ReduceLoss {
    In<Vector> loss;           // (1, M) statistic
    In<Scalar> alpha;          // statistic: 1 / (valid targets of the whole optimizer step)
    Accumulate<Scalar> total;  // statistic

    static constexpr const char* name = "ReduceLoss";
    static constexpr auto operands = std::tuple{field("loss", &ReduceLoss::loss), field("alpha", &ReduceLoss::alpha),
                                                field("total", &ReduceLoss::total)};
};

// ---------------------------------------------------------------------------------------------------------------
// Backward. The RMSNorm statistic c = (1/d) Σ_j x̂_j dx̂_j of a norm followed by z = (x ⊙ rstd ⊙ gamma) Wᵀ equals
// (1/d) Σ z dz over all output features (eps included, exactly), so it is summed where dz is made, before the dgrad
// GEMM whose epilogue needs it. "dot" below is that Σ z dz.
// ---------------------------------------------------------------------------------------------------------------

/// logits -> dlogits in place, unscaled: g = exp(l - lse) - [column == target]; 0 on ignored rows and on columns
/// >= vocab; dot = Σ_v l g.
struct CrossEntropyBackward {
    InOut<Matrix> logits;  // (M, V) storage
    In<Vector> lse;        // (1, M) statistic
    In<Vector> targets;    // (1, M) i32
    Out<Vector> dot;       // (1, M) statistic, from g before rounding
    std::int64_t vocab = 0;

    static constexpr const char* name = "CrossEntropyBackward";
    static constexpr auto operands =
        std::tuple{field("logits", &CrossEntropyBackward::logits), field("lse", &CrossEntropyBackward::lse),
                   field("targets", &CrossEntropyBackward::targets), field("dot", &CrossEntropyBackward::dot)};
};

/// K9, acc = a w with w (K, N): dn = alpha acc; x̂ = x rstd; c = alpha dot / N;
///   dx (+)= rstd (dn ⊙ gamma - x̂ c);  n = x̂ ⊙ gamma;  per column and row tile Σ dn ⊙ x̂.
/// n is the normalised activation that the weight gradient of the same projection needs next.
struct LinearRmsBackward {
    In<Matrix> a;           // (M, K) storage: gradient of the projection's output
    In<Matrix> w;           // (K, N) storage
    In<Matrix> x;           // (M, N) storage: the residual stream that was normalised
    In<Vector> rstd;        // (1, M) statistic
    In<Vector> dot;         // (1, M) statistic
    In<Vector> gamma;       // (1, N) master
    In<Scalar> alpha;       // statistic, optional (absent: 1)
    Accumulate<Matrix> dx;  // (M, N) storage: gradient of the residual stream
    Out<Matrix> n;          // (M, N) storage
    Out<Partials> dgamma;   // (tiles over M, N) statistic
    std::int64_t tile = 0;  // rows per partial

    static constexpr const char* name = "LinearRmsBackward";
    static constexpr auto operands =
        std::tuple{field("a", &LinearRmsBackward::a),         field("w", &LinearRmsBackward::w),
                   field("x", &LinearRmsBackward::x),         field("rstd", &LinearRmsBackward::rstd),
                   field("dot", &LinearRmsBackward::dot),     field("gamma", &LinearRmsBackward::gamma),
                   field("alpha", &LinearRmsBackward::alpha), field("dx", &LinearRmsBackward::dx),
                   field("n", &LinearRmsBackward::n),         field("dgamma", &LinearRmsBackward::dgamma)};
};

/// K10, dy = a w with w (K, f) and (g, u) the column pairs of z; σ = sigmoid(g), s = g σ:
///   dg = dy u (σ + s (1 - σ));  du = dy s;  dz = (dg, du) interleaved;  y = s u;  per row and tile Σ g dg + u du.
struct LinearSwigluBackward {
    In<Matrix> a;       // (M, K) storage
    In<Matrix> w;       // (K, f) storage
    In<Matrix> z;       // (M, 2f) storage
    Out<Matrix> dz;     // (M, 2f) storage; may be z itself (a tile is loaded before it is stored)
    Out<Matrix> y;      // (M, f) storage
    Out<Partials> dot;  // (tiles over f, M) statistic, from dg, du before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearSwigluBackward";
    static constexpr auto operands =
        std::tuple{field("a", &LinearSwigluBackward::a), field("w", &LinearSwigluBackward::w),
                   field("z", &LinearSwigluBackward::z), field("dz", &LinearSwigluBackward::dz),
                   field("y", &LinearSwigluBackward::y), field("dot", &LinearSwigluBackward::dot)};
    static constexpr auto in_place = std::tuple{&LinearSwigluBackward::z, &LinearSwigluBackward::dz};
};

/// dgrad of the output projection with attention's delta in its epilogue: out = a w with w (K, N);
/// delta[h, m] = Σ over head h of o ⊙ round(acc), with the rounded value that is stored in out.
struct LinearHeadDot {
    In<Matrix> a;       // (M, K) storage
    In<Matrix> w;       // (K, H hd) storage
    In<Matrix> o;       // (M, H hd) storage
    Out<Matrix> out;    // (M, H hd) storage
    Out<Matrix> delta;  // (H, M) statistic
    std::int64_t head_dim = 0;

    static constexpr const char* name = "LinearHeadDot";
    static constexpr auto operands =
        std::tuple{field("a", &LinearHeadDot::a), field("w", &LinearHeadDot::w), field("o", &LinearHeadDot::o),
                   field("out", &LinearHeadDot::out), field("delta", &LinearHeadDot::delta)};
};

/// grad (+)= alpha dyᵀ x.
struct WeightGradient {
    In<Matrix> dy;            // (M, out) storage
    In<Matrix> x;             // (M, in) storage
    In<Scalar> alpha;         // statistic, optional (absent: 1)
    Accumulate<Matrix> grad;  // (out, in) gradient
    InOut<Scratch> scratch;   // tiling::scratch_bytes, optional where that is 0

    static constexpr const char* name = "WeightGradient";
    static constexpr auto operands = std::tuple{
        field("dy", &WeightGradient::dy), field("x", &WeightGradient::x), field("alpha", &WeightGradient::alpha),
        field("grad", &WeightGradient::grad), field("scratch", &WeightGradient::scratch)};
};

/// Gradients of Attention with respect to the rotated qkv. delta = Σ_head o ⊙ dout is computed inside.
///   p = exp(q k / sqrt(hd) - lse); dv = pᵀ dout; ds = p (dout vᵀ - delta) / sqrt(hd); dq = ds k; dk = dsᵀ q.
struct AttentionBackward {
    In<Matrix> qkv;        // (M, Nq) storage
    In<Matrix> o;          // (M, H hd) storage
    In<Matrix> dout;       // (M, H hd) storage
    In<Matrix> lse;        // (H, M) statistic
    In<Vector> doc_start;  // (1, M) i32, optional
    Out<Matrix> dqkv;      // (M, Nq) storage
    InOut<Scratch> scratch;
    std::int64_t seq_len = 0;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

    static constexpr const char* name = "AttentionBackward";
    static constexpr auto operands = std::tuple{field("qkv", &AttentionBackward::qkv),
                                                field("o", &AttentionBackward::o),
                                                field("dout", &AttentionBackward::dout),
                                                field("lse", &AttentionBackward::lse),
                                                field("doc_start", &AttentionBackward::doc_start),
                                                field("dqkv", &AttentionBackward::dqkv),
                                                field("scratch", &AttentionBackward::scratch)};
};

/// AttentionBackward with delta given (LinearHeadDot) and RopeBackward fused into the kernel that finishes dq, dk, dv:
/// dqkv is the gradient before RoPE, and dot the per-head parts of Σ qkv ⊙ dqkv taken before un-rotation.
struct AttentionRopeBackward {
    In<Matrix> qkv;        // (M, Nq) storage
    In<Matrix> dout;       // (M, H hd) storage
    In<Matrix> lse;        // (H, M) statistic
    In<Matrix> delta;      // (H, M) statistic
    In<Vector> positions;  // (1, M) i32
    In<Matrix> rope;       // (positions, hd) statistic
    In<Vector> doc_start;  // (1, M) i32, optional
    Out<Matrix> dqkv;      // (M, Nq) storage
    Out<Partials> dot;     // (H + 2 Hk, M) statistic, from dq, dk, dv before rounding
    InOut<Scratch> scratch;
    std::int64_t seq_len = 0;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

    static constexpr const char* name = "AttentionRopeBackward";
    static constexpr auto operands = std::tuple{field("qkv", &AttentionRopeBackward::qkv),
                                                field("dout", &AttentionRopeBackward::dout),
                                                field("lse", &AttentionRopeBackward::lse),
                                                field("delta", &AttentionRopeBackward::delta),
                                                field("positions", &AttentionRopeBackward::positions),
                                                field("rope", &AttentionRopeBackward::rope),
                                                field("doc_start", &AttentionRopeBackward::doc_start),
                                                field("dqkv", &AttentionRopeBackward::dqkv),
                                                field("dot", &AttentionRopeBackward::dot),
                                                field("scratch", &AttentionRopeBackward::scratch)};
};

/// dot = Σ over all Nq columns of qkv ⊙ dqkv; then pairs of the first `rotated` columns turn back:
/// (du, dv) -> (du cos + dv sin, dv cos - du sin).
struct RopeBackward {
    In<Matrix> qkv;        // (M, Nq) storage, after RoPE
    InOut<Matrix> dqkv;    // (M, Nq) storage
    In<Vector> positions;  // (1, M) i32
    In<Matrix> rope;       // (positions, hd) statistic
    Out<Vector> dot;       // (1, M) statistic
    std::int64_t rotated = 0;
    std::int64_t head_dim = 0;

    static constexpr const char* name = "RopeBackward";
    static constexpr auto operands = std::tuple{field("qkv", &RopeBackward::qkv), field("dqkv", &RopeBackward::dqkv),
                                                field("positions", &RopeBackward::positions),
                                                field("rope", &RopeBackward::rope), field("dot", &RopeBackward::dot)};
};

/// sum = Σ_tiles partials, in order: finishes a row statistic ("dot").
struct FinishRowSum {
    In<Partials> partials;  // (tiles, M) statistic
    Out<Vector> sum;        // (1, M) statistic

    static constexpr const char* name = "FinishRowSum";
    static constexpr auto operands =
        std::tuple{field("partials", &FinishRowSum::partials), field("sum", &FinishRowSum::sum)};
};

/// grad (+)= Σ_tiles partials, in order: finishes the gradient of a norm weight.
struct FinishColumnSum {
    In<Partials> partials;    // (tiles, N) statistic
    Accumulate<Vector> grad;  // (1, N) gradient

    static constexpr const char* name = "FinishColumnSum";
    static constexpr auto operands =
        std::tuple{field("partials", &FinishColumnSum::partials), field("grad", &FinishColumnSum::grad)};
};

/// grad[token_m] += dx_m; rows of the same token are added in order of m, in the gradient's type.
struct EmbedBackward {
    In<Vector> tokens;       // (1, M) i32
    In<Matrix> dx;           // (M, d) storage
    InOut<Matrix> grad;      // (V, d) gradient
    InOut<Scratch> scratch;  // sorting

    static constexpr const char* name = "EmbedBackward";
    static constexpr auto operands =
        std::tuple{field("tokens", &EmbedBackward::tokens), field("dx", &EmbedBackward::dx),
                   field("grad", &EmbedBackward::grad), field("scratch", &EmbedBackward::scratch)};
};

/// out = 0.
struct Zero {
    Out<Matrix> out;

    static constexpr const char* name = "Zero";
    static constexpr auto operands = std::tuple{field("out", &Zero::out)};
};

// ---------------------------------------------------------------------------------------------------------------
// Update
// ---------------------------------------------------------------------------------------------------------------

/// norm = sqrt(Σ grad²) over the whole flat gradient, in a fixed order; clip = min(1, max_norm / norm) (1 where
/// max_norm is 0); skip |= !isfinite(norm) || !isfinite(loss). skip is sticky: only the host clears it.
struct GradNorm {
    In<Vector> grad;         // (1, n) gradient
    In<Scalar> loss;         // statistic
    Out<Scalar> norm;        // statistic, before clipping
    Out<Scalar> clip;        // statistic
    InOut<Scalar> skip;      // i32
    InOut<Scratch> scratch;  // partial sums
    double max_norm = 0;

    static constexpr const char* name = "GradNorm";
    static constexpr auto operands = std::tuple{field("grad", &GradNorm::grad), field("loss", &GradNorm::loss),
                                                field("norm", &GradNorm::norm), field("clip", &GradNorm::clip),
                                                field("skip", &GradNorm::skip), field("scratch", &GradNorm::scratch)};
};

/// AdamW over the flat parameters; nothing is written where skip is not 0. g = clip grad;
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²;
///   master = master (1 - lr decay) - lr (m correction1) / (sqrt(v correction2) + eps);  working = round(master).
/// decay applies to the first `decayed` elements (the matrices). The update uses m and v before they are rounded. bf16
/// moments are rounded stochastically (math/random.h): philox(seed, step, element) word 0 for m, word 1 for v.
struct AdamW {
    In<Vector> grad;         // (1, n) gradient
    InOut<Vector> master;    // (1, n) master
    InOut<Vector> m;         // (1, n) master type, or bf16
    InOut<Vector> v;         // (1, n) master type, or bf16
    Out<Vector> working;     // (1, n) storage; absent where storage and master are one buffer
    In<Scalar> lr;           // statistic
    In<Scalar> correction1;  // statistic: 1 / (1 - beta1^t)
    In<Scalar> correction2;  // statistic: 1 / (1 - beta2^t)
    In<Scalar> clip;         // statistic
    In<Scalar> step;         // i32: t, from 1
    In<Scalar> skip;         // i32
    std::int64_t decayed = 0;
    double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    std::uint64_t seed = 0;

    static constexpr const char* name = "AdamW";
    static constexpr auto operands = std::tuple{field("grad", &AdamW::grad),
                                                field("master", &AdamW::master),
                                                field("m", &AdamW::m),
                                                field("v", &AdamW::v),
                                                field("working", &AdamW::working),
                                                field("lr", &AdamW::lr),
                                                field("correction1", &AdamW::correction1),
                                                field("correction2", &AdamW::correction2),
                                                field("clip", &AdamW::clip),
                                                field("step", &AdamW::step),
                                                field("skip", &AdamW::skip)};
};

using Op = std::variant<Embed, Linear, LinearRope, LinearSwiglu, LinearCrossEntropy, LinearResidualRms, LinearRstd,
                        LinearRstdSwiglu, LinearRstdRope, LinearRstdCrossEntropy, FinishRstd, Attention,
                        FinishCrossEntropy, ReduceLoss, CrossEntropyBackward, LinearRmsBackward, LinearSwigluBackward,
                        LinearHeadDot, WeightGradient, AttentionBackward, AttentionRopeBackward, RopeBackward,
                        FinishRowSum, FinishColumnSum, EmbedBackward, Zero, GradNorm, AdamW>;

enum class Phase : std::uint8_t { forward, backward, update };

/// One entry of a schedule. `layer` is -1 outside the layers.
struct Step {
    Phase phase = Phase::forward;
    int layer = -1;
    const char* name = "";
    Op op;
};
using Schedule = std::vector<Step>;

/// fn(field name, view, access) for every operand that is present.
template <class T, class Fn>
void for_each_operand(const T& op, Fn&& fn) {
    const auto visit = [&](const auto& entry) {
        const auto& operand = op.*(entry.member);
        if (operand) fn(entry.name, static_cast<const View&>(operand), operand.access());
    };
    std::apply([&](const auto&... entries) { (visit(entries), ...); }, T::operands);
}

template <class Fn>
void for_each_operand(const Op& op, Fn&& fn) {
    std::visit([&](const auto& concrete) { for_each_operand(concrete, fn); }, op);
}

inline const char* name_of(const Op& op) {
    return std::visit([](const auto& concrete) { return std::decay_t<decltype(concrete)>::name; }, op);
}

}  // namespace coda
