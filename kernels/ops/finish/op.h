// The second stage of reductions whose first stage was a tile of a GEMM. Notation: kernels/ops.h.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/core/error.h"
#include "kernels/core/op.h"

namespace coda {

/// rstd = 1/sqrt(Σ_tiles square / width + eps).
struct FinishRstd {
    In<Partials> square;     // (tiles, M) statistic
    Out<Vector> rstd;        // (1, M) statistic
    std::int64_t width = 0;  // d, the width of the normalised vector
    double eps = 0;

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FinishRstd";
    static constexpr auto operands = fields(field("square", &FinishRstd::square), field("rstd", &FinishRstd::rstd));

    double flops() const { return static_cast<double>(square.count()); }
};

/// sum = Σ_tiles partials, in a fixed order: finishes a row statistic ("dot").
struct FinishRowSum {
    In<Partials> partials;  // (tiles, M) statistic
    Out<Vector> sum;        // (1, M) statistic

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FinishRowSum";
    static constexpr auto operands =
        fields(field("partials", &FinishRowSum::partials), field("sum", &FinishRowSum::sum));

    double flops() const { return static_cast<double>(partials.count()); }
};

/// Up to kMost gradients by columns, each from partials: of the weights and biases of norms, and of the biases of
/// matrices. A sum has gamma where its partials come from a matrix that carries the norm's weight (LinearRmsBackward,
/// BetaBackward). Two sums may have the same partials.
struct FinishColumnSums {
    static constexpr std::size_t kMost = 3;
    static constexpr std::array<GradientSumNames, kMost> kNames{
        {{"partials", "gamma", "grad"}, {"partials_2", "gamma_2", "grad_2"}, {"partials_3", "gamma_3", "grad_3"}}};

    std::array<GradientSum, kMost> sums;

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "FinishColumnSums";
    static constexpr auto operands = fields(field(kNames, &FinishColumnSums::sums));

    /// Throws Error where there are kMost already.
    void add(const GradientSum& sum) {
        const auto free = std::find_if(sums.begin(), sums.end(), [](const GradientSum& each) { return !each; });
        require(free != sums.end(), name, ": more than ", kMost, " sums");
        *free = sum;
    }

    double flops() const {
        double count = 0;
        for (const GradientSum& sum : sums) count += static_cast<double>(sum.partials.count());
        return count;
    }
};

/// Calls fn(GradientSumNames, GradientSum) for every sum that is present. Throws Error where there is none.
template <class Fn>
void for_each_sum(const FinishColumnSums& op, Fn&& fn) {
    bool found = false;
    for (std::size_t i = 0; i < op.sums.size(); ++i) {
        if (!op.sums[i]) continue;
        found = true;
        fn(op.kNames[i], op.sums[i]);
    }
    require(found, op.name, ": no sum");
}

}  // namespace coda
