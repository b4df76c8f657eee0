// FinishRstd, FinishRowSum, FinishColumnSum, ReduceLoss - the second stage of reductions whose first stage was a tile.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/access.h"
#include "kernels/cpu/operations.h"
#include "kernels/math/rms.h"

namespace coda::cpu {
namespace {

/// Calls finish(j, Σ_tiles partials[tile][j]) for every column j, each sum in order of the tile.
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

/// fn(Compute()) for a statistic of type double or float.
template <class Fn>
void dispatch_statistic(const char* op, const char* operand, const View& view, Fn&& fn) {
    switch (view.dtype) {
        case DType::f64: return fn(double());
        case DType::f32: return fn(float());
        default: throw Error(text(op, ": operand ", operand, " is ", name_of(view.dtype), ", expected f64 or f32"));
    }
}

}  // namespace

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

void execute(const FinishRowSum& op, const Memory& memory) {
    dispatch_statistic(FinishRowSum::name, "partials", op.partials, [&]<class Compute>(Compute) {
        const Operands operands(FinishRowSum::name, memory);
        const auto* partials = operands.get<Compute>("partials", op.partials, op.partials.rows, op.partials.cols);
        auto* result = operands.get<Compute>("sum", op.sum, 1, op.partials.cols);
        sum_tiles(partials, op.partials, [&](std::int64_t m, Compute sum) { result[m] = sum; });
    });
}

void execute(const FinishColumnSum& op, const Memory& memory) {
    dispatch_statistic(FinishColumnSum::name, "partials", op.partials, [&]<class Compute>(Compute) {
        const Operands operands(FinishColumnSum::name, memory);
        const auto* partials = operands.get<Compute>("partials", op.partials, op.partials.rows, op.partials.cols);
        const auto* gamma = operands.get_optional<Compute>("gamma", op.gamma, 1, op.partials.cols);
        auto* grad = operands.get<Compute>("grad", op.grad, 1, op.partials.cols);
        const bool accumulate = op.grad.beta == Beta::accumulate;
        sum_tiles(partials, op.partials, [&](std::int64_t j, Compute sum) {
            const Compute own = gamma ? sum / norm_factor(gamma[j]) : sum;
            grad[j] = accumulate ? grad[j] + own : own;
        });
    });
}

void execute(const ReduceLoss& op, const Memory& memory) {
    dispatch_statistic(ReduceLoss::name, "loss", op.loss, [&]<class Compute>(Compute) {
        const Operands operands(ReduceLoss::name, memory);
        const auto* loss = operands.get<Compute>("loss", op.loss, 1, op.loss.cols);
        const auto* alpha = operands.get<Compute>("alpha", op.alpha, 1, 1);
        auto* total = operands.get<Compute>("total", op.total, 1, 1);
        double sum = 0;
        for (std::int64_t m = 0; m < op.loss.cols; ++m) sum += static_cast<double>(loss[m]);
        const auto share = static_cast<Compute>(static_cast<double>(*alpha) * sum);
        *total = op.total.beta == Beta::accumulate ? *total + share : share;
    });
}

}  // namespace coda::cpu
