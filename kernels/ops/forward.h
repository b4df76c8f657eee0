// The operations of the forward pass. Notation: kernels/ops.h.
#pragma once

#include "kernels/ops/field.h"

namespace coda {

/// x = table[token]; rstd = 1/sqrt(mean x² + eps). Rows with a token outside the table are an error of the caller (the
/// loader checks every id).
struct Embed {
    In<Vector> tokens;  // (1, M) i32
    In<Matrix> table;   // (V, d) storage or master
    Out<Matrix> x;      // (M, d) storage
    Out<Vector> rstd;   // (1, M) statistic, from x as stored
    double eps = 0;

    static constexpr const char* name = "Embed";
    static constexpr auto operands = std::tuple{field("tokens", &Embed::tokens), field("table", &Embed::table),
                                                field("x", &Embed::x), field("rstd", &Embed::rstd)};
};

/// out = acc rstd, or out += acc rstd. With rstd it is K5.
struct Linear {
    In<Matrix> a;            // (M, K) storage
    In<Matrix> w;            // (N, K) or (K, N) storage, see layout
    In<Vector> rstd;         // (1, M) statistic, optional (absent: 1)
    Accumulate<Matrix> out;  // (M, N) storage or gradient
    WeightLayout layout = WeightLayout::out_in;

    static constexpr const char* name = "Linear";
    static constexpr auto operands = std::tuple{field("a", &Linear::a), field("w", &Linear::w),
                                                field("rstd", &Linear::rstd), field("out", &Linear::out)};
};

/// K1, with rstd K7: z = acc rstd; adjacent column pairs of the first `rotated` columns of z turn by the angle of
/// (position, pair in head): (u, v) -> (u cos - v sin, v cos + u sin), the LLaMA sign. Further columns (v heads) are
/// stored as they are.
struct LinearRope {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> w;              // (Nq, K) storage, rows [q heads | k heads | v heads]
    In<Vector> rstd;           // (1, M) statistic, optional (absent: 1)
    In<Vector> positions;      // (1, M) i32, each < rows of rope
    In<Matrix> rope;           // (positions, hd) statistic: columns 2i, 2i+1 = cos, sin of pair i
    Out<Matrix> out;           // (M, Nq) storage, columns as the rows of w
    std::int64_t rotated = 0;  // (H + Hk) hd
    std::int64_t head_dim = 0;

    static constexpr const char* name = "LinearRope";
    static constexpr auto operands =
        std::tuple{field("a", &LinearRope::a),       field("w", &LinearRope::w),
                   field("rstd", &LinearRope::rstd), field("positions", &LinearRope::positions),
                   field("rope", &LinearRope::rope), field("out", &LinearRope::out)};
};

/// K2, with rstd K6: w has gate and up rows interleaved, so columns 2i, 2i+1 of z = acc rstd are (g, u);
/// y = silu(g) u of g and u as they are stored in z, whether z is kept or not: recomputed from z, y has the same bits.
/// z is stored after the rstd factor: the backward statistic Σ z dz needs it so.
struct LinearSwiglu {
    In<Matrix> a;     // (M, K) storage
    In<Matrix> w;     // (2f, K) storage
    In<Vector> rstd;  // (1, M) statistic, optional (absent: 1)
    Out<Matrix> z;    // (M, 2f) storage, optional
    Out<Matrix> y;    // (M, f) storage, optional

    static constexpr const char* name = "LinearSwiglu";
    static constexpr auto operands =
        std::tuple{field("a", &LinearSwiglu::a), field("w", &LinearSwiglu::w), field("rstd", &LinearSwiglu::rstd),
                   field("z", &LinearSwiglu::z), field("y", &LinearSwiglu::y)};
};

/// The logit of each row's target, apart from the head's product: t = rstd Σ_k a table[target]; 0 on ignored rows. What
/// LinearCrossEntropy measures a row's logits from.
struct TargetLogit {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> table;          // (vocab, K) storage: the valid rows of the head's weight
    In<Vector> rstd;           // (1, M) statistic, optional (absent: 1)
    In<Vector> targets;        // (1, M) i32, < 0: ignored
    Out<Vector> target_logit;  // (1, M) statistic

    static constexpr const char* name = "TargetLogit";
    static constexpr auto operands =
        std::tuple{field("a", &TargetLogit::a), field("table", &TargetLogit::table), field("rstd", &TargetLogit::rstd),
                   field("targets", &TargetLogit::targets), field("target_logit", &TargetLogit::target_logit)};
};

/// K3, with rstd K8: exponentials of the logits, from which one factor per row makes the softmax: with t the row's
/// target logit,
///   d = acc rstd - t;  e = exp of it, shifted and limited (kernels/math/cross_entropy.h);
/// per row and tile the pair (Σ e, Σ e d) over columns < vocab, of e rounded to storage whether it is stored or not (a
/// row of the gradient sums to 0 only if the sum is of what is stored). Columns >= vocab are stored as 0.
///
/// p = e / Σ e needs no maximum of the row: bf16 and fp32 have the exponents for every e, and as t is a logit of the
/// row no sum is 0. So there is no second pass over the logits: the factor 1 / Σ e goes to the products that read e
/// (LinearRmsBackward's `scale`).
struct LinearCrossEntropy {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> w;              // (V, K) storage
    In<Vector> rstd;           // (1, M) statistic, optional (absent: 1)
    In<Vector> target_logit;   // (1, M) statistic
    Out<Matrix> exponentials;  // (M, V) storage, optional
    Out<Partials> sums;        // (tiles over V, 2 M) statistic: pairs (Σ e, Σ e d)
    std::int64_t vocab = 0;    // valid columns, <= V
    std::int64_t tile = 0;     // columns per pair

    static constexpr const char* name = "LinearCrossEntropy";
    static constexpr auto operands = std::tuple{field("a", &LinearCrossEntropy::a),
                                                field("w", &LinearCrossEntropy::w),
                                                field("rstd", &LinearCrossEntropy::rstd),
                                                field("target_logit", &LinearCrossEntropy::target_logit),
                                                field("exponentials", &LinearCrossEntropy::exponentials),
                                                field("sums", &LinearCrossEntropy::sums)};
};

/// K4: x = acc + residual; per row and tile Σ x². Closes a residual branch and opens the next norm: the next norm's
/// 1/rms is one factor per row, so it commutes with the next GEMM and is applied there; its weight is in that GEMM's
/// matrix.
struct LinearResidualRms {
    In<Matrix> a;          // (M, K) storage
    In<Matrix> w;          // (N, K) storage
    In<Matrix> residual;   // (M, N) storage
    Out<Matrix> x;         // (M, N) storage
    Out<Partials> square;  // (tiles over N, M) statistic, from x before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearResidualRms";
    static constexpr auto operands =
        std::tuple{field("a", &LinearResidualRms::a), field("w", &LinearResidualRms::w),
                   field("residual", &LinearResidualRms::residual), field("x", &LinearResidualRms::x),
                   field("square", &LinearResidualRms::square)};
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

/// Sums of a row's pairs over the tiles, in a fixed order: S = Σ e, D = Σ e d. With t the target's logit and e_t its
/// exponential as stored:
///   loss = log S + shift, NaN where D is not finite (S hides a logit that is not), 0 on ignored rows
///   scale = 1 / S, 0 on ignored rows
///   e_t <- r = e_t - S rounded to storage: a row of exponentials is then its gradient g = p - [target] over scale
///   dot = (D + t (S - e_t + r)) scale = Σ_v l g, of g as it is stored: the dgrad that follows multiplies the same
/// Without exponentials (an evaluation) there is only the loss. Ignored rows of exponentials stay as they are.
struct FinishCrossEntropy {
    In<Partials> sums;           // (tiles, 2 M) statistic: pairs (Σ e, Σ e d)
    In<Vector> target_logit;     // (1, M) statistic
    In<Vector> targets;          // (1, M) i32, < 0: ignored
    InOut<Matrix> exponentials;  // (M, V) storage, optional; with it:
    Out<Vector> scale;           // (1, M) statistic
    Out<Vector> dot;             // (1, M) statistic
    Out<Vector> loss;            // (1, M) statistic

    static constexpr const char* name = "FinishCrossEntropy";
    static constexpr auto operands = std::tuple{
        field("sums", &FinishCrossEntropy::sums),       field("target_logit", &FinishCrossEntropy::target_logit),
        field("targets", &FinishCrossEntropy::targets), field("exponentials", &FinishCrossEntropy::exponentials),
        field("scale", &FinishCrossEntropy::scale),     field("dot", &FinishCrossEntropy::dot),
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

}  // namespace coda
