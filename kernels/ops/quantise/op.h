// A matrix rounded to FP8, by rows and transposed. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// FP8 copies of x, of one format, for the products that read it along one or both of its dimensions. An element is
/// rounded once, and its code written to both:
///
///   v = x rstd;  code = f8(scale v);  rows = code;  columns = codeᵀ;  amax = max(amax, |v|)
///
/// Values beyond the format's largest number take that number. A NaN becomes the code of NaN, 0x7f, and does not change
/// amax; an infinity makes amax infinite.
struct QuantiseF8 {
    In<Matrix> x;     // (M, N) storage; N a multiple of 16
    In<Vector> rstd;  // (1, M) statistic, optional (absent: 1)
    // rows (M, N) f8e4m3 or f8e5m2; columns (N, M) of that type, natural (of weights) or paired (of tokens), M a
    // multiple of 16. One of rows, columns and amax is there.
    Rounded codes;

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "QuantiseF8";
    static constexpr RoundedNames names{"scale", "rows", "columns", "amax"};
    static constexpr auto operands =
        fields(field("x", &QuantiseF8::x), field("rstd", &QuantiseF8::rstd), field(names, &QuantiseF8::codes));

    double flops() const { return 2 * static_cast<double>(x.count()); }
    /// The type of the codes.
    DType format() const { return codes.rows ? codes.rows.dtype : codes.columns ? codes.columns.dtype : DType::f8e4m3; }
    /// Products of two factors, and roundings of one value: the same bits on any path in fp32.
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

}  // namespace coda
