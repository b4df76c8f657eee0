// The plain GEMM. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// out = acc rstd, or out += acc rstd. With rstd it is K5.
///
/// FP8 form: a and w (N, K) are FP8, K a multiple of 16, and out = scale acc in bf16, or out (+)= scale acc in fp32.
/// `scale` undoes the scales of a and w. The tensor cores keep about 14 bits of a sum; with `promotion`, their sums of
/// that many elements of K are added in fp32. The formats of a and w may differ.
struct Linear {
    In<Matrix> a;            // (M, K) storage
    In<Matrix> w;            // (N, K) or (K, N) storage, see layout
    In<Vector> rstd;         // (1, M) statistic, optional (absent: 1)
    In<Scalar> scale = {};   // statistic, optional (absent: 1); of the FP8 form alone
    Accumulate<Matrix> out;  // (M, N) storage or gradient
    WeightLayout layout = WeightLayout::out_in;
    std::int64_t promotion = 0;  // elements of K; 0: never. Of the FP8 form alone

    static constexpr const char* name = "Linear";
    static constexpr auto operands =
        std::tuple{field("a", &Linear::a), field("w", &Linear::w), field("rstd", &Linear::rstd),
                   field("scale", &Linear::scale), field("out", &Linear::out)};

    View result() const { return out; }
    std::optional<Tolerance> tolerance(std::string_view, DType dtype) const {
        if (!is_f8(a.dtype)) return std::nullopt;
        return f8_product_tolerance(a.cols, promotion, SumOver::features, dtype == DType::bf16);
    }
};

}  // namespace coda
