#include "kernels/oracle/tolerance.h"

#include <cstdio>
#include <optional>
#include <type_traits>

#include "kernels/core/error.h"

namespace coda::oracle {

namespace {

/// Nothing is computed: a copy, a constant or a flag.
constexpr Tolerance kExact{0, 0};

/// Stored in bf16, once, from an fp32 value. Rounding moves an element by half a step, at most 2^-8 = 3.9e-3 of itself
/// at the bottom of a binade; RMS from 1.1e-3 (all at the top) to 2.3e-3. The rest is room for fp32 arithmetic in
/// another order.
constexpr Tolerance kStorage{4e-3, 5e-3};

/// Attention's output: P is rounded to bf16 as operand of the second product, which is off in the same way as the
/// stored result where a query sees few keys, and averages out where it sees many.
constexpr Tolerance kAttentionOutput{4e-3, 1e-2};

/// Attention's gradients: P and dS are rounded to bf16 as operands of the second products, and the result is where it
/// is stored: two RMS errors of up to 2.3e-3 each, added in quadrature, and half as much again. A row of dS sums to
/// zero, so the terms of dq cancel for keys with a common part, and the errors of their factors do not: dq and dk are
/// measured against their terms.
constexpr Tolerance kAttentionGradient{5e-3, 1.5e-2};

/// y of gate and up as rounded to bf16: where the two accumulators lie on either side of a tie, one of them differs by
/// 2^-7 of itself, and y by 1.1 times that and its own rounding.
constexpr Tolerance kRoundedFactors{4e-3, 1.3e-2};

/// qkv ⊙ dqkv summed over a head, dqkv with the errors of its factors: the same, and room for terms that cancel.
constexpr Tolerance kAttentionDot{1e-2, 2e-2};

/// out ⊙ o summed over a head, with `out` as rounded to bf16: where the two accumulators lie on either side of a tie, a
/// term differs by 2^-7 of itself. With fp32 accumulators 2^-20 apart that is one term in 2^11.
constexpr Tolerance kRoundedDot{1e-3, 1e-2};

/// Exponentials of logits, each against itself: stored in bf16, and a logit's error is that share of its exponential.
/// A logit of 2^5 whose accumulators are 2^-14 apart, at the worst of 2048 products of one sign, adds 2^-9.
constexpr Tolerance kExponential{4e-3, 8e-3};

/// A tile's sums of exponentials as rounded, and of their products with d. Where the two accumulators lie on either
/// side of a tie, an exponential differs by 2^-7 of itself, which counts in full where it is most of its tile's sum.
/// With fp32 accumulators 2^-20 apart that is one in 2^10 for logits of 2^3: 2.4e-4 RMS at most. The logits' own errors
/// come on top, of 2^3 and 2^-14 5e-4, and for a single tile, of 2^5, 2e-3.
constexpr Tolerance kExponentialSum{1e-3, 1.2e-2};

/// fp32 sums of terms that are not rounded. Up to some hundred terms in another order: 2^-24 sqrt(terms) relative to
/// terms of mixed sign, 2^-24 terms at most: 1e-5. Tensor cores cut every product at the last bit of the accumulator
/// that it joins, towards zero: 2^-24 of the sum on average, K times that where all products have one sign.
/// Accumulators of another order, as cuBLAS's may be, lose about half of it more or less: 1.3e-3 was seen in the
/// gradient of a head of 128256 columns summed from the first. Single elements: errors are as unevenly spread as the
/// values are.
constexpr double kSum = 1e-5, kTruncation = 0x1p-25, kSpread = 4;

/// log of a sum that is 1, scaled, but for a small rest where the model is sure: 2^-24 of it counts where the loss is
/// as small as 6e-4.
constexpr Tolerance kLoss{1e-4, 1e-4};

/// Elementwise fp32 updates: three roundings of 2^-24 in master and moments, each of their own size.
constexpr Tolerance kUpdate{5e-7, 2e-6};

/// Stochastic rounding with the same random bits: another bf16 neighbour, 2^-7 of the element at most, only where the
/// last fp32 bit decides, 2^-14 of all elements.
constexpr Tolerance kStochastic{3e-4, 1e-2};

/// The view of a written operand; for the parts that OperandError names, that of the whole.
template <class T>
View written_operand(const T& op, const std::string& operand) {
    View found;
    std::string wanted = operand;
    if (std::is_same_v<T, AttentionBackward> && (operand == "dq" || operand == "dk" || operand == "dv"))
        wanted = "dqkv";
    if (std::is_same_v<T, FinishCrossEntropy> && operand == "target") wanted = "exponentials";
    for_each_operand(op, [&](const std::string& field, const View& view, Access access) {
        if (access != Access::in && field != "scratch" && field == wanted) found = view;
    });
    require(static_cast<bool>(found), "oracle: ", T::name, " writes no operand ", operand);
    return found;
}

/// Terms of the op's product: K, or M where the product is a weight gradient's. 0 without one.
template <class T>
std::int64_t contraction(const T& op) {
    if constexpr (requires { op.w; }) {
        return op.a.cols;
    } else if constexpr (std::is_same_v<T, WeightGradient>) {
        return op.dy.rows;
    } else {
        return 0;
    }
}

/// What follows from the operand's type alone.
template <class T>
Tolerance by_type(const T& op, const View& view) {
    if (view.dtype == DType::i32) return kExact;
    if (view.dtype == DType::bf16) return kStorage;
    const double sum = kSum + kTruncation * static_cast<double>(contraction(op));
    return {sum, kSpread * sum};
}

/// What does not. One overload an op; `operand` is one that it writes.
template <class T>
std::optional<Tolerance> special(const T&, const std::string& operand, const View&) {
    if (std::is_same_v<T, AttentionBackward>) return operand == "dot" ? kAttentionDot : kAttentionGradient;
    if (std::is_same_v<T, Attention> && operand == "o") return kAttentionOutput;
    if (std::is_same_v<T, LinearHeadDot> && operand == "delta") return kRoundedDot;
    if (std::is_same_v<T, LinearSwiglu> && operand == "y") return kRoundedFactors;
    if (std::is_same_v<T, LinearCrossEntropy>) return operand == "sums" ? kExponentialSum : kExponential;
    if (std::is_same_v<T, FinishCrossEntropy> && operand == "loss") return kLoss;
    if (std::is_same_v<T, FinishCrossEntropy> && operand == "exponentials") return kExact;
    if (std::is_same_v<T, Embed> && operand == "x") return kExact;
    if (std::is_same_v<T, Zero>) return kExact;
    return std::nullopt;
}
std::optional<Tolerance> special(const AdamW&, const std::string& operand, const View& view) {
    if (operand == "working") return kExact;
    return view.dtype == DType::bf16 ? kStochastic : kUpdate;
}

bool within(const OperandError& error, const Tolerance& allowed) {
    return error.rms <= allowed.rms && error.largest <= allowed.largest;
}

std::string scientific(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.1e", value);
    return digits;
}

}  // namespace

Tolerance tolerance(const Op& op, const std::string& operand) {
    return std::visit(
        [&](const auto& concrete) {
            const View view = written_operand(concrete, operand);
            return special(concrete, operand, view).value_or(by_type(concrete, view));
        },
        op);
}

bool within_tolerance(const Op& op, const Report& report) {
    for (const OperandError& error : report.operands)
        if (!within(error, tolerance(op, error.operand))) return false;
    return !report.operands.empty();
}

std::string line_of(const std::string& label, const Op& op, const Report& report) {
    std::string line = text(label, " ", name_of(op)), beyond;
    for (std::size_t i = 0; i < report.operands.size(); ++i) {
        const OperandError& error = report.operands[i];
        const Tolerance allowed = tolerance(op, error.operand);
        line += text("  ", error.operand, " ", scientific(error.rms));
        const bool last = i + 1 == report.operands.size();
        if (last || tolerance(op, report.operands[i + 1].operand).rms != allowed.rms)
            line += text("  (tolerance ", scientific(allowed.rms), ")");
        if (!within(error, allowed))
            beyond += text(beyond.empty() ? "" : ",", " ", error.operand, " (largest ", scientific(error.largest),
                           " of ", scientific(allowed.largest), ")");
    }
    if (report.operands.empty()) return line + "  BEYOND: nothing was compared";
    return line + (beyond.empty() ? "  ok" : "  BEYOND:" + beyond);
}

}  // namespace coda::oracle
