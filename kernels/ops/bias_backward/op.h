// Back through the bias of a projection after a norm. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// For z = rstd (x ⊙ gamma) Wᵀ + b, whose gradient is stored times rstd. The norm's statistic pairs dz with what x̂ made
/// of z, so dot -= Σ_n b_n dz_n for every row, with the factor that dz and dot are stored with. The gradient of b is
/// the sum of dz over the rows, without that factor: sum = Σ_rows dz / rstd, which FinishColumnSum finishes.
struct BiasBackward {
    static constexpr std::int64_t kTileRows = 64;

    In<Matrix> dz;          // (M, N) storage
    In<Vector> rstd;        // (1, M) statistic, optional (absent: 1): the factor with which dz is stored
    In<Vector> bias;        // (1, N) master
    InOut<Vector> dot;      // (1, M) statistic: Σ z dz, then Σ (z - b) dz
    Out<Partials> sum;      // (ceil(M / tile), N) statistic
    std::int64_t tile = 0;  // kTileRows

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "BiasBackward";
    static constexpr auto operands = std::tuple{field("dz", &BiasBackward::dz), field("rstd", &BiasBackward::rstd),
                                                field("bias", &BiasBackward::bias), field("dot", &BiasBackward::dot),
                                                field("sum", &BiasBackward::sum)};

    double flops() const { return 4.0 * static_cast<double>(dz.count()); }
    /// The order of the sums is another one in the oracle, and thousands of terms of mixed sign may cancel.
    static constexpr Tolerance kSums{2e-5, 1e-4};
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kSums; }
};

}  // namespace coda
