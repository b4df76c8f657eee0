// The dgrad of attention's output projection, with attention's delta. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// The dgrad of attention's output projection, with attention's delta in its epilogue: out = a w with w (K, N);
/// delta[h, m] = Σ over head h of o ⊙ round(acc), where round(acc) is the value that is stored in out.
///
/// With FP8 factors, f8e4m3 with K a multiple of 16, undo acc stands for acc. Their w is the transposed copy (H hd, K).
struct LinearHeadDot {
    In<Matrix> a;       // (M, K) storage or FP8
    Factor w;           // (K, H hd) storage, or FP8 (H hd, K)
    In<Matrix> o;       // (M, H hd) storage
    Out<Matrix> out;    // (M, H hd) storage
    Out<Matrix> delta;  // (H, M) statistic
    std::int64_t head_dim = 0;

    static constexpr Traits traits{Trait::layout, Trait::result, Trait::tolerance, Trait::takes_f8, Trait::w};
    static constexpr const char* name = "LinearHeadDot";
    static constexpr auto operands =
        fields(field("a", &LinearHeadDot::a), field("w", &LinearHeadDot::w), field("o", &LinearHeadDot::o),
               field("out", &LinearHeadDot::out), field("delta", &LinearHeadDot::delta));
    static constexpr bool takes_f8 = true;

    static constexpr WeightLayout layout = WeightLayout::in_out;
    View result() const { return out; }
    /// delta sums out ⊙ o over a head, with `out` rounded to bf16. Where the two accumulators lie on either side of a
    /// tie, a term differs by 2^-7 of itself. With fp32 accumulators that differ by 2^-20, that is one term in 2^11.
    ///
    /// Accumulators of FP8 factors differ by about as much as bf16 numbers are apart, so the roundings of the two
    /// sides are independent: 2.3e-3 each, 3.3e-3 together.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        if (is_f8(a.dtype)) {
            if (operand != "delta") return f8_product_tolerance(a.cols, true);
            const double sum = f8_product_error(a.cols, 0, SumOver::features) + 3.3e-3;
            return Tolerance{sum, 4 * sum};
        }
        return operand == "delta" ? std::optional(Tolerance{1e-3, 1e-2}) : std::nullopt;
    }
};

}  // namespace coda
