// A matrix of the working copy, from the master weights. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// working = round(master), with gamma round(master ⊙ norm_factor(gamma)), gamma over the columns: what AdamW writes
/// there (NormFold, ops/optimizer/op.h), for a plan that keeps no working copy of all matrices.
struct RoundWeights {
    In<Matrix> master;    // (N, K) master; K a multiple of 8
    In<Vector> gamma;     // (1, K) master, optional: the weight of the norm before the matrix
    Out<Matrix> working;  // (N, K) storage

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "RoundWeights";
    static constexpr auto operands =
        fields(field("master", &RoundWeights::master), field("gamma", &RoundWeights::gamma),
               field("working", &RoundWeights::working));

    double flops() const { return static_cast<double>(master.count()); }
    /// One product and one rounding.
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

}  // namespace coda
