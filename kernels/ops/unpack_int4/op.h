// A matrix of the working copy, from 4-bit integers. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// working = round(q scale), with gamma round(q scale ⊙ norm_factor(gamma)), gamma over the columns: what RoundWeights
/// makes of a master q scale, which fp32 holds exactly.
struct UnpackInt4 {
    In<Matrix> units;     // (N / 16, K / 128 kInt4UnitWords) i32, kernels/math/int4.h; N a multiple of 16, K of 128
    In<Vector> gamma;     // (1, K) master, optional: the weight of the norm before the matrix
    Out<Matrix> working;  // (N, K) storage

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "UnpackInt4";
    static constexpr auto operands = fields(field("units", &UnpackInt4::units), field("gamma", &UnpackInt4::gamma),
                                            field("working", &UnpackInt4::working));

    double flops() const { return static_cast<double>(working.count()); }
    /// An exact product, one more and one rounding.
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

}  // namespace coda
