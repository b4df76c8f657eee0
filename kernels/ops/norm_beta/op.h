// The bias beta of a norm before a projection, forward and back. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// For z = (rstd x ⊙ gamma + beta) Wᵀ + b, which a GEMM computes as rstd (x ⊙ gamma) Wᵀ + v:
///   v = W beta + b, from the working copy: v_o = b_o + Σ_j working_oj beta_j / norm_factor(gamma_j).
/// So v has the W that the GEMM multiplies by, rounded as it is there.
struct FoldBeta {
    In<Matrix> working;  // (N, d) storage: W with norm_factor(gamma) in its columns (NormFold, ops/optimizer/op.h)
    In<Vector> gamma;    // (1, d) master
    In<Vector> beta;     // (1, d) master
    In<Vector> bias;     // b (1, N) master, optional (absent: 0)
    Out<Vector> v;       // (1, N) statistic

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FoldBeta";
    static constexpr auto operands =
        fields(field("working", &FoldBeta::working), field("gamma", &FoldBeta::gamma), field("beta", &FoldBeta::beta),
               field("bias", &FoldBeta::bias), field("v", &FoldBeta::v));

    double flops() const { return 2.0 * static_cast<double>(working.count()); }
};

/// What v = W beta + b adds to the gradients, from db = Σ_rows dz:
///   grad += db ⊗ beta, grad of W;
///   dbeta = Σ_o db_o working_oj per tile of rows of W, which FinishColumnSums with gamma turns into the gradient of
///   beta, db W: it divides by norm_factor(gamma), which the columns of the working copy carry.
/// Both are linear in db. Where db accumulates over micro-batches, the op runs once, after the last of them.
struct BetaBackward {
    static constexpr std::int64_t kTileRows = 64;

    In<Vector> db;          // (1, N) gradient
    In<Matrix> working;     // (N, d) storage: W with norm_factor(gamma) in its columns
    In<Vector> beta;        // (1, d) master
    InOut<Matrix> grad;     // (N, d) gradient
    Out<Partials> dbeta;    // (ceil(N / tile), d) statistic
    std::int64_t tile = 0;  // kTileRows

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "BetaBackward";
    static constexpr auto operands = fields(field("db", &BetaBackward::db), field("working", &BetaBackward::working),
                                            field("beta", &BetaBackward::beta), field("grad", &BetaBackward::grad),
                                            field("dbeta", &BetaBackward::dbeta));

    double flops() const { return 4.0 * static_cast<double>(working.count()); }
};

}  // namespace coda
