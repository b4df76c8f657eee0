// The dgrad of attention's output projection, with attention's delta. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// The dgrad of attention's output projection, with attention's delta in its epilogue: out = a w with w (K, N);
/// delta[h, m] = Σ over head h of o ⊙ round(acc), where round(acc) is the value that is stored in out.
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

    static constexpr WeightLayout layout = WeightLayout::in_out;
    View result() const { return out; }
    /// delta sums out ⊙ o over a head, with `out` rounded to bf16. Where the two accumulators lie on either side of a
    /// tie, a term differs by 2^-7 of itself. With fp32 accumulators that differ by 2^-20, that is one term in 2^11.
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType) {
        return operand == "delta" ? std::optional(Tolerance{1e-3, 1e-2}) : std::nullopt;
    }
};

}  // namespace coda
