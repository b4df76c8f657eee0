// The LM head: its GEMM with the exponentials of cross-entropy, the loss, and the factors that turn the exponentials
// into a gradient. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// The logit of each row's target, apart from the LM head's GEMM: t = rstd Σ_k a table[target]; 0 on ignored rows.
/// LinearCrossEntropy measures a row's logits from it.
struct TargetLogit {
    In<Matrix> a;              // (M, K) storage
    In<Matrix> table;          // (vocab, K) storage: the valid rows of the head's weight
    In<Vector> rstd;           // (1, M) statistic, optional (absent: 1)
    In<Vector> targets;        // (1, M) i32, < 0: ignored
    Out<Vector> target_logit;  // (1, M) statistic

    static constexpr Traits traits{Trait::flops, Trait::bytes_of};
    static constexpr const char* name = "TargetLogit";
    static constexpr auto operands =
        fields(field("a", &TargetLogit::a), field("table", &TargetLogit::table), field("rstd", &TargetLogit::rstd),
               field("targets", &TargetLogit::targets), field("target_logit", &TargetLogit::target_logit));

    double flops() const { return 2 * static_cast<double>(a.count()); }
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &table ? gathered_bytes(table, targets) : operand.bytes();
    }
};

/// K3, with rstd K8: exponentials of the logits; one factor per row turns them into the softmax. With t the row's
/// target logit,
///   d = acc rstd - t;  e = exp(d), shifted and limited (kernels/math/cross_entropy.h);
///   per row and tile the pair (Σ e, Σ e d) over columns < vocab.
/// The sums are of e rounded to storage, whether e is stored or not: a row of the gradient sums to 0 only if the sum is
/// of the stored values. Columns >= vocab are stored as 0.
///
/// p = e / Σ e does not need the row's maximum: bf16 and fp32 have the exponents for every e, and no sum is 0, as t is
/// a logit of the row. So there is no second pass over the logits: the GEMMs that read e apply the factor 1 / Σ e
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

    static constexpr Traits traits{Trait::result, Trait::tolerance, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "LinearCrossEntropy";
    static constexpr auto operands =
        fields(field("a", &LinearCrossEntropy::a), field("w", &LinearCrossEntropy::w),
               field("rstd", &LinearCrossEntropy::rstd), field("target_logit", &LinearCrossEntropy::target_logit),
               field("exponentials", &LinearCrossEntropy::exponentials), field("sums", &LinearCrossEntropy::sums));

    static constexpr std::int64_t kTileColumns = 128;  // columns per pair of sums
    View result() const { return exponentials; }
    TensorScalars scalars_of_a() const { return {.times = rstd}; }

    /// Exponentials, each measured against itself: they are stored in bf16, and a logit's absolute error is a relative
    /// error of its exponential. A logit of 2^5 whose accumulators differ by 2^-14 of it, the worst for 2048 terms of
    /// one sign, adds 2^-9.
    static constexpr Tolerance kExponential{4e-3, 8e-3};
    /// A tile's sums of rounded exponentials, and of their products with d. Where the two accumulators lie on either
    /// side of a tie, an exponential differs by 2^-7 of itself, which counts in full where it is most of its tile's
    /// sum. With fp32 accumulators that differ by 2^-20, that is one exponential in 2^10 for logits of 2^3: 2.4e-4 RMS
    /// at most. The logits' own errors come on top: 5e-4 for logits of 2^3 that differ by 2^-14 of themselves, and 2e-3
    /// for a single tile, with logits of 2^5.
    static constexpr Tolerance kSums{1e-3, 1.2e-2};
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        return operand == "sums" ? kSums : kExponential;
    }
};

/// Sums each row's pairs over the tiles, in a fixed order: S = Σ e, D = Σ e d. With t the target's logit and e_t its
/// exponential as stored:
///   loss = log S + shift, NaN where D is not finite (S hides a logit that is not), 0 on ignored rows
///   scale = 1 / S, 0 on ignored rows
///   e_t <- r = e_t - S rounded to storage: scale times the row of exponentials is then the gradient g = p - [target]
///   dot = (D + t (S - e_t + r)) scale = Σ_v l g, with l the logits and g as stored, as the dgrad that follows reads it
/// Without exponentials (an evaluation) there is only the loss. Ignored rows of exponentials stay unchanged.
///
/// With flags: 1 for a row that S, D and t do not tell the truth of (cross_entropy::needs_exact), 0 for any other and
/// for ignored ones. Flagged rows get loss, scale and dot 0 and keep their exponentials: ExactCrossEntropy replaces all
/// four.
struct FinishCrossEntropy {
    In<Partials> sums;           // (tiles, 2 M) statistic: pairs (Σ e, Σ e d)
    In<Vector> target_logit;     // (1, M) statistic
    In<Vector> targets;          // (1, M) i32, < 0: ignored
    InOut<Matrix> exponentials;  // (M, V) storage, optional; with it:
    Out<Vector> scale;           // (1, M) statistic
    Out<Vector> dot;             // (1, M) statistic
    Out<Vector> loss;            // (1, M) statistic
    Out<Vector> flags;           // (1, M) i32, optional

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::tolerance, Trait::part_of};
    static constexpr const char* name = "FinishCrossEntropy";
    static constexpr auto operands =
        fields(field("sums", &FinishCrossEntropy::sums), field("target_logit", &FinishCrossEntropy::target_logit),
               field("targets", &FinishCrossEntropy::targets), field("exponentials", &FinishCrossEntropy::exponentials),
               field("scale", &FinishCrossEntropy::scale), field("dot", &FinishCrossEntropy::dot),
               field("loss", &FinishCrossEntropy::loss), field("flags", &FinishCrossEntropy::flags));

    double flops() const { return static_cast<double>(sums.count()); }
    /// The exponentials count with one element per row, the target's.
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &exponentials ? operand.rows * size_of(operand.dtype) : operand.bytes();
    }
    /// Where the model is sure, loss is the log of a sum that is, scaled, 1 plus a small rest: 2^-24 of the sum counts
    /// where the loss is as small as 6e-4. All exponentials but the target's stay unchanged.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        if (operand == "loss") return Tolerance{1e-4, 1e-4};
        return operand == "exponentials" ? std::optional(kExact) : std::nullopt;
    }
    static constexpr std::string_view part_of(std::string_view part) {
        return part == "target" ? "exponentials" : part;
    }
};

/// Loss and gradient of the flagged rows, from their logits l = rstd Σ_k a table computed again, without tensor cores
/// and unrounded. With q = exp(l - max) / Σ over the columns but the target's, and x = max + log Σ - l_target:
///   loss = log(1 + e^x),  scale = 1 / (1 + e^-x) = 1 - p of the target
///   exponentials = q, rounded so that their sum stays 1 (cross_entropy::round_carrying); -1 for the target; 0 in
///   columns beyond the vocabulary. In fp32 and fp64 storage q is rounded as any number.
///   dot = scale Σ_v l g of the exponentials g as stored
/// No logit is limited, and no element of the gradient is a difference. A logit that is not finite makes the row NaN.
/// Rows that are ignored or not flagged stay unchanged. Without exponentials (an evaluation) there is only the loss.
///
/// Where no row is flagged, nothing is computed, and that is what flops and bytes count. A flagged row costs 4 K V
/// FLOPs outside tensor cores, half of that in an evaluation.
struct ExactCrossEntropy {
    In<Matrix> a;                // (M, K) storage
    In<Matrix> table;            // (vocab, K) storage: the valid rows of the head's weight
    In<Vector> rstd;             // (1, M) statistic, optional (absent: 1)
    In<Vector> targets;          // (1, M) i32, < 0: ignored
    In<Vector> flags;            // (1, M) i32, not 0: flagged
    InOut<Matrix> exponentials;  // (M, V) storage, V >= vocab, optional; with it:
    InOut<Vector> scale;         // (1, M) statistic
    InOut<Vector> dot;           // (1, M) statistic
    InOut<Vector> loss;          // (1, M) statistic
    InOut<Scratch> scratch;      // lists and sums per row and slice of columns

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::scratch_bytes, Trait::tolerance};
    static constexpr const char* name = "ExactCrossEntropy";
    static constexpr auto operands =
        fields(field("a", &ExactCrossEntropy::a), field("table", &ExactCrossEntropy::table),
               field("rstd", &ExactCrossEntropy::rstd), field("targets", &ExactCrossEntropy::targets),
               field("flags", &ExactCrossEntropy::flags), field("exponentials", &ExactCrossEntropy::exponentials),
               field("scale", &ExactCrossEntropy::scale), field("dot", &ExactCrossEntropy::dot),
               field("loss", &ExactCrossEntropy::loss), field("scratch", &ExactCrossEntropy::scratch));

    double flops() const { return 0; }
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &flags || &operand == &targets ? operand.bytes() : 0;
    }
    std::int64_t scratch_bytes() const;

    /// Exponentials, each measured against itself and what 2^-12 of its logit makes of it, since logits are rounded to
    /// fp32: off by one step of bf16 at most, 2^-7, and by 0.41 of a step RMS. Loss and scale follow from sums of
    /// accurate exponentials. dot is computed from the stored elements, and another order of carrying stores others:
    /// where one column has nearly all of q, its rounding is the error of dot, 2^-9 at most.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        if (operand == "dot") return Tolerance{1e-3, 4e-3};
        return operand == "exponentials" ? Tolerance{4e-3, 9e-3} : Tolerance{1e-4, 1e-4};
    }
};

/// total (+)= alpha Σ_m loss, in a fixed order.
struct ReduceLoss {
    In<Vector> loss;           // (1, M) statistic
    In<Scalar> alpha;          // statistic: 1 / (valid targets of the whole optimizer step)
    Accumulate<Scalar> total;  // statistic

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "ReduceLoss";
    static constexpr auto operands = fields(field("loss", &ReduceLoss::loss), field("alpha", &ReduceLoss::alpha),
                                            field("total", &ReduceLoss::total));

    double flops() const { return static_cast<double>(loss.count()); }
};

}  // namespace coda
