// LayerNorm of a residual stream that has mean 0 in every row, where no matrix carries its weight. Notation:
// kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// n = rstd x ⊙ gamma + beta, which is LayerNorm because the mean of every row of x is 0: then rstd, RMSNorm's
/// 1/sqrt(mean x² + eps), is LayerNorm's. The op subtracts no mean, and x may be any matrix.
struct LayerNorm {
    In<Matrix> x;      // (M, d) storage
    In<Vector> rstd;   // (1, M) statistic
    In<Vector> gamma;  // (1, d) master
    In<Vector> beta;   // (1, d) master
    Out<Matrix> n;     // (M, d) storage

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "LayerNorm";
    static constexpr auto operands =
        fields(field("x", &LayerNorm::x), field("rstd", &LayerNorm::rstd), field("gamma", &LayerNorm::gamma),
               field("beta", &LayerNorm::beta), field("n", &LayerNorm::n));

    double flops() const { return 3.0 * static_cast<double>(x.count()); }
};

/// Back through LayerNorm. With x̂ = rstd x and t = dn ⊙ gamma:
///   dx = rstd (t - x̂ mean_j(t x̂));
///   per tile of rows: dgamma = Σ dn ⊙ x̂, dbeta = Σ dn, and dx_sum = Σ dx before rounding, the gradient of a bias that
///   was added to x. FinishColumnSums finishes all three, dgamma too without gamma: no matrix carried it.
/// LayerNorm's own dx is this one without its mean over j. No mean is taken out here: dx is right up to a multiple of
/// (1, ..., 1) in every row. Nothing that makes the stream moves the mean of a row, so that the gradients of its
/// matrices and biases, once CentreColumns has centred them, do not depend on that multiple.
struct LayerNormBackward {
    static constexpr std::int64_t kTileRows = 64;

    In<Matrix> dn;          // (M, d) storage
    In<Matrix> x;           // (M, d) storage
    In<Vector> rstd;        // (1, M) statistic
    In<Vector> gamma;       // (1, d) master
    Out<Matrix> dx;         // (M, d) storage
    Out<Partials> dgamma;   // (ceil(M / tile), d) statistic
    Out<Partials> dbeta;    // (ceil(M / tile), d) statistic, optional
    Out<Partials> dx_sum;   // (ceil(M / tile), d) statistic, optional
    std::int64_t tile = 0;  // kTileRows

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "LayerNormBackward";
    static constexpr auto operands =
        fields(field("dn", &LayerNormBackward::dn), field("x", &LayerNormBackward::x),
               field("rstd", &LayerNormBackward::rstd), field("gamma", &LayerNormBackward::gamma),
               field("dx", &LayerNormBackward::dx), field("dgamma", &LayerNormBackward::dgamma),
               field("dbeta", &LayerNormBackward::dbeta), field("dx_sum", &LayerNormBackward::dx_sum));

    double flops() const { return 12.0 * static_cast<double>(x.count()); }
};

}  // namespace coda
