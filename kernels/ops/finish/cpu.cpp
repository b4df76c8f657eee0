// FinishRstd, FinishRowSum, FinishColumnSums - the second stage of reductions whose first stage was a GEMM's tile.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/math/rms.h"
#include "kernels/ops/finish/op.h"

namespace coda::cpu {
namespace {

/// Calls finish(j, Σ_tiles partials[tile][j]) for every column j. Each sum is in the order of the tiles.
template <class Compute, class Finish>
void sum_tiles(const Compute* partials, const View& view, Finish&& finish) {
    constexpr std::int64_t kColumns = 256;
#pragma omp parallel for
    for (std::int64_t first = 0; first < view.cols; first += kColumns) {
        const std::int64_t number = std::min(kColumns, view.cols - first);
        Compute sum[kColumns] = {};
        for (std::int64_t tile = 0; tile < view.rows; ++tile) {
            const Compute* row = partials + tile * view.ld + first;
            for (std::int64_t j = 0; j < number; ++j) sum[j] += row[j];
        }
        for (std::int64_t j = 0; j < number; ++j) finish(first + j, sum[j]);
    }
}

}  // namespace

template <>
void execute(const FinishRstd& op, const Memory& memory) {
    dispatch_statistic(FinishRstd::name, "square", op.square, [&]<class Compute>(Compute) {
        require(op.width >= 1, FinishRstd::name, ": width ", op.width, " is not positive");
        const Operands operands(FinishRstd::name, memory);
        const auto* square = operands.get<Compute>("square", op.square, op.square.rows, op.square.cols);
        auto* rstd = operands.get<Compute>("rstd", op.rstd, 1, op.square.cols);
        const auto width = static_cast<Compute>(op.width);
        const auto eps = static_cast<Compute>(op.eps);
        sum_tiles(square, op.square,
                  [&](std::int64_t m, Compute sum) { rstd[m] = Compute(1) / std::sqrt(sum / width + eps); });
    });
}

template <>
void execute(const FinishRowSum& op, const Memory& memory) {
    dispatch_statistic(FinishRowSum::name, "partials", op.partials, [&]<class Compute>(Compute) {
        const Operands operands(FinishRowSum::name, memory);
        const auto* partials = operands.get<Compute>("partials", op.partials, op.partials.rows, op.partials.cols);
        auto* result = operands.get<Compute>("sum", op.sum, 1, op.partials.cols);
        sum_tiles(partials, op.partials, [&](std::int64_t m, Compute sum) { result[m] = sum; });
    });
}

template <>
void execute(const FinishColumnSums& op, const Memory& memory) {
    for_each_sum(op, [&](const GradientSumNames& names, const GradientSum& each) {
        dispatch_statistic(op.name, names.partials, each.partials, [&]<class Compute>(Compute) {
            const Operands operands(op.name, memory);
            const std::int64_t columns = each.partials.cols;
            const auto* partials = operands.get<Compute>(names.partials, each.partials, each.partials.rows, columns);
            const auto* gamma = operands.get_optional<Compute>(names.gamma, each.gamma, 1, columns);
            auto* grad = operands.get<Compute>(names.grad, each.grad, 1, columns);
            const bool accumulate = each.grad.beta == Beta::accumulate;
            sum_tiles(partials, each.partials, [&](std::int64_t j, Compute sum) {
                const Compute own = gamma ? sum / norm_factor(gamma[j]) : sum;
                grad[j] = accumulate ? grad[j] + own : own;
            });
        });
    });
}

}  // namespace coda::cpu
