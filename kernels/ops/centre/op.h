// A matrix, and the bias next to it, without their means over the output dimension. Notation: kernels/ops.h.
#pragma once

#include <array>

#include "kernels/core/op.h"

namespace coda {

/// out_oj = matrix_oj - (1/N) Σ_o' matrix_o'j: each column without its mean. What a matrix so centred adds to a row of
/// the residual stream has mean 0. The bias that is added next to it is one more column. A matrix of one row is an
/// error.
///
/// The centred weights are a copy, and a gradient is centred in place: `out` may be `matrix` itself, as one more
/// version, and `bias_out` may be `bias`. The mean is summed and subtracted in the compute type, and each element is
/// rounded once.
struct CentreColumns {
    In<Matrix> matrix;          // (N, K) storage, master or gradient
    Out<Matrix> out;            // (N, K) of the same dtype
    In<Vector> bias = {};       // (1, N) master or gradient, optional
    Out<Vector> bias_out = {};  // (1, N) of the same dtype, present with `bias`

    static constexpr Traits traits{Trait::flops, Trait::in_place};
    static constexpr const char* name = "CentreColumns";
    static constexpr auto operands =
        fields(field("matrix", &CentreColumns::matrix), field("out", &CentreColumns::out),
               field("bias", &CentreColumns::bias), field("bias_out", &CentreColumns::bias_out));
    auto in_place() const {
        return std::array{std::pair<View, View>{matrix, out}, std::pair<View, View>{bias, bias_out}};
    }

    double flops() const { return 2.0 * static_cast<double>(matrix.count() + bias.count()); }
};

}  // namespace coda
