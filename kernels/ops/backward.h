// The operations of the backward pass. Notation: kernels/ops.h.
//
// The RMSNorm statistic c = (1/d) Σ_j x̂_j dx̂_j of a norm followed by z = (x ⊙ rstd ⊙ gamma) Wᵀ equals
// (1/d) Σ z dz over all output features (eps included, exactly), so it is summed where dz is made, before the dgrad
// GEMM whose epilogue needs it. "dot" below is that Σ z dz.
#pragma once

#include "kernels/ops/field.h"

namespace coda {

/// K9, acc = a w with w (K, N). The norm's 1/rms is in one of two places: rows of a are the gradient of the
/// projection's output times rstd, made so by the op that stored them, and dot is the sum of that gradient; or, with
/// `scale`, rows of a are that gradient over scale, and dot is the gradient's own:
///   t = alpha acc,             c = alpha dot / N             without scale
///   t = alpha scale rstd acc,  c = alpha rstd dot / N        with it
///   dx (+)= t - x rstd c;  n = scale rstd x;  per column and row tile Σ t ⊙ x.
/// w carries the norm's weight gamma, so t has it, and Σ t ⊙ x is the gradient of gamma times gamma (FinishColumnSum).
/// The weight gradient of the same projection is (a)ᵀ x ⊙ gamma without scale, so it reads x itself
/// (WeightGradient::gamma); with scale it is (a)ᵀ n ⊙ gamma.
struct LinearRmsBackward {
    In<Matrix> a;           // (M, K) storage: gradient of the projection's output, times rstd or over scale
    In<Matrix> w;           // (K, N) storage
    In<Matrix> x;           // (M, N) storage: the residual stream that was normalised
    In<Vector> rstd;        // (1, M) statistic
    In<Vector> dot;         // (1, M) statistic
    In<Scalar> alpha;       // statistic, optional (absent: 1)
    In<Vector> scale;       // (1, M) statistic, optional
    Accumulate<Matrix> dx;  // (M, N) storage: gradient of the residual stream
    Out<Matrix> n;          // (M, N) storage, optional
    Out<Partials> dgamma;   // (tiles over M, N) statistic
    std::int64_t tile = 0;  // rows per partial

    static constexpr const char* name = "LinearRmsBackward";
    static constexpr auto operands =
        std::tuple{field("a", &LinearRmsBackward::a),         field("w", &LinearRmsBackward::w),
                   field("x", &LinearRmsBackward::x),         field("rstd", &LinearRmsBackward::rstd),
                   field("dot", &LinearRmsBackward::dot),     field("alpha", &LinearRmsBackward::alpha),
                   field("scale", &LinearRmsBackward::scale), field("dx", &LinearRmsBackward::dx),
                   field("n", &LinearRmsBackward::n),         field("dgamma", &LinearRmsBackward::dgamma)};
};

/// K10, dy = rstd a w with w (K, f) and (g, u) the column pairs of z; σ = sigmoid(g), s = g σ:
///   dg = dy u (σ + s (1 - σ));  du = dy s;  dz = (dg, du) interleaved;  y = s u;  per row and tile Σ g dg + u du.
/// rstd is that of the norm before the products that made z: LinearRmsBackward and WeightGradient of them want dz
/// times it. y is what LinearSwiglu stored, bit by bit; absent where that was kept.
struct LinearSwigluBackward {
    In<Matrix> a;       // (M, K) storage
    In<Matrix> w;       // (K, f) storage
    In<Matrix> z;       // (M, 2f) storage
    In<Vector> rstd;    // (1, M) statistic, optional (absent: 1)
    Out<Matrix> dz;     // (M, 2f) storage; may be z itself (a tile is loaded before it is stored)
    Out<Matrix> y;      // (M, f) storage, optional
    Out<Partials> dot;  // (tiles over f, M) statistic, from dg, du before rounding
    std::int64_t tile = 0;

    static constexpr const char* name = "LinearSwigluBackward";
    static constexpr auto operands =
        std::tuple{field("a", &LinearSwigluBackward::a),    field("w", &LinearSwigluBackward::w),
                   field("z", &LinearSwigluBackward::z),    field("rstd", &LinearSwigluBackward::rstd),
                   field("dz", &LinearSwigluBackward::dz),  field("y", &LinearSwigluBackward::y),
                   field("dot", &LinearSwigluBackward::dot)};
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

/// grad (+)= alpha dyᵀ x ⊙ gamma, gamma over the columns: where x is the residual stream and dy carries its rstd, the
/// gradient of a projection of the normalised stream, with respect to the matrix without the norm's weight.
struct WeightGradient {
    In<Matrix> dy;            // (M, out) storage
    In<Matrix> x;             // (M, in) storage
    In<Vector> gamma;         // (1, in) master, optional (absent: 1)
    In<Scalar> alpha;         // statistic, optional (absent: 1)
    Accumulate<Matrix> grad;  // (out, in) gradient
    InOut<Scratch> scratch;   // tiling::scratch_bytes, optional where that is 0

    static constexpr const char* name = "WeightGradient";
    static constexpr auto operands =
        std::tuple{field("dy", &WeightGradient::dy),       field("x", &WeightGradient::x),
                   field("gamma", &WeightGradient::gamma), field("alpha", &WeightGradient::alpha),
                   field("grad", &WeightGradient::grad),   field("scratch", &WeightGradient::scratch)};
};

/// Gradients of Attention with respect to qkv, with delta = Σ_head o ⊙ dout given (LinearHeadDot) or computed from o:
///   p = exp(q k / sqrt(hd) - lse); dv = pᵀ dout; ds = p (dout vᵀ - delta) / sqrt(hd); dq = ds k; dk = dsᵀ q;
///   dqkv = (dq, dk, dv) rstd, with rstd that of the norm before the product that made qkv (LinearRmsBackward and
///   WeightGradient want it there).
/// With rope, qkv is as LinearRope stored it and dqkv is the gradient before the rotation: pairs of q and k columns
/// turn back, (du, dv) -> (du cos + dv sin, dv cos - du sin), and per head dot = Σ qkv ⊙ dqkv, taken before they do.
/// Not deterministic (free order), the parts of dq are added as they come, and its last bits differ from run to run;
/// dk and dv keep theirs. The CPU executor always adds in one order.
struct AttentionBackward {
    In<Matrix> qkv;        // (M, Nq) storage
    In<Matrix> o;          // (M, H hd) storage; absent where delta is given
    In<Matrix> dout;       // (M, H hd) storage
    In<Matrix> lse;        // (H, M) statistic
    In<Matrix> delta;      // (H, M) statistic; absent where o is given
    In<Vector> positions;  // (1, M) i32, with rope
    In<Matrix> rope;       // (positions, hd) statistic, optional; with it positions and dot
    In<Vector> rstd;       // (1, M) statistic, optional (absent: 1), with rope alone
    In<Vector> doc_start;  // (1, M) i32, optional
    Out<Matrix> dqkv;      // (M, Nq) storage
    Out<Partials> dot;     // (H + 2 Hk, M) statistic, with rope; from dq, dk, dv before rounding
    InOut<Scratch> scratch;
    std::int64_t seq_len = 0;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    bool deterministic = true;  // the same bits for the same operands

    static constexpr const char* name = "AttentionBackward";
    static constexpr auto operands = std::tuple{field("qkv", &AttentionBackward::qkv),
                                                field("o", &AttentionBackward::o),
                                                field("dout", &AttentionBackward::dout),
                                                field("lse", &AttentionBackward::lse),
                                                field("delta", &AttentionBackward::delta),
                                                field("positions", &AttentionBackward::positions),
                                                field("rope", &AttentionBackward::rope),
                                                field("rstd", &AttentionBackward::rstd),
                                                field("doc_start", &AttentionBackward::doc_start),
                                                field("dqkv", &AttentionBackward::dqkv),
                                                field("dot", &AttentionBackward::dot),
                                                field("scratch", &AttentionBackward::scratch)};
};

/// sum = Σ_tiles partials, in a fixed order: finishes a row statistic ("dot").
struct FinishRowSum {
    In<Partials> partials;  // (tiles, M) statistic
    Out<Vector> sum;        // (1, M) statistic

    static constexpr const char* name = "FinishRowSum";
    static constexpr auto operands =
        std::tuple{field("partials", &FinishRowSum::partials), field("sum", &FinishRowSum::sum)};
};

/// grad (+)= Σ_tiles partials / norm_factor(gamma), in a fixed order: finishes the gradient of a norm's weight, from
/// products with a matrix that carries it.
struct FinishColumnSum {
    In<Partials> partials;    // (tiles, N) statistic
    In<Vector> gamma;         // (1, N) master, optional (absent: 1)
    Accumulate<Vector> grad;  // (1, N) gradient

    static constexpr const char* name = "FinishColumnSum";
    static constexpr auto operands =
        std::tuple{field("partials", &FinishColumnSum::partials), field("gamma", &FinishColumnSum::gamma),
                   field("grad", &FinishColumnSum::grad)};
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

}  // namespace coda
