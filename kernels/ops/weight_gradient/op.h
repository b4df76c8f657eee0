// The wgrad of a projection. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/field.h"

namespace coda {

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

}  // namespace coda
