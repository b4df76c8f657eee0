// FinishCrossEntropy, CrossEntropyBackward - the loss from the log-sum-exp partials, and its gradient in the logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/access.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/operations.h"

namespace coda::cpu {
namespace {

/// Row m of the partials: log Σ_tiles sum exp(max - m) + m, m the largest max.
template <class Compute>
Compute log_sum_exp(const Compute* pairs, std::int64_t tiles, std::int64_t ld) {
    Compute largest = pairs[0];
    for (std::int64_t tile = 1; tile < tiles; ++tile) largest = std::max(largest, pairs[tile * ld]);
    Compute sum = 0;
    for (std::int64_t tile = 0; tile < tiles; ++tile)
        sum += pairs[tile * ld + 1] * exponential(pairs[tile * ld] - largest);
    return std::log(sum) + largest;
}

/// One row of logits (vocab, then padding up to `columns`) to its gradient; returns Σ l g of g as stored.
template <class Storage, class Compute>
Compute cross_entropy_backward_row(Storage* logits, std::int64_t vocab, std::int64_t columns, Compute lse,
                                   std::int64_t target) {
    // Float lanes within a block, double across blocks: the sum over 128k columns keeps float accuracy.
    constexpr std::int64_t kBlock = 1024;
    // The target's term l (p - 1) is added apart, by expm1: p is close to 1 where the model is sure, and the difference
    // would be lost in the rounding of the sum. A logit of 0 takes the target out of the sum.
    const auto target_logit = static_cast<Compute>(logits[target]);
    const Compute target_gradient = std::expm1(target_logit - lse);
    logits[target] = Storage{};
    double dot = static_cast<double>(target_logit) *
                 static_cast<double>(static_cast<Compute>(static_cast<Storage>(target_gradient)));
    for (std::int64_t first = 0; first < vocab; first += kBlock) {
        const std::int64_t last = std::min(first + kBlock, vocab);
        Compute sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = first; j < last; ++j) {
            const auto logit = static_cast<Compute>(logits[j]);
            const Compute probability = exponential(logit - lse);
            const auto stored = static_cast<Storage>(probability);
            sum += logit * static_cast<Compute>(stored);
            logits[j] = stored;
        }
        dot += static_cast<double>(sum);
    }
    logits[target] = static_cast<Storage>(target_gradient);
    std::fill(logits + vocab, logits + columns, Storage{});
    return static_cast<Compute>(dot);
}

}  // namespace

void execute(const FinishCrossEntropy& op, const Memory& memory) {
    const auto run = [&]<class Compute>(Compute) {
        const std::int64_t rows = op.targets.cols;
        require(op.partials.rows >= 1, FinishCrossEntropy::name, ": partials has no tile");
        const Operands operands(FinishCrossEntropy::name, memory);
        const auto* partials = operands.get<Compute>("partials", op.partials, op.partials.rows, 2 * rows);
        const auto* target_logit = operands.get<Compute>("target_logit", op.target_logit, 1, rows);
        const auto* targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
        auto* lse = operands.get<Compute>("lse", op.lse, 1, rows);
        auto* loss = operands.get<Compute>("loss", op.loss, 1, rows);
#pragma omp parallel for
        for (std::int64_t m = 0; m < rows; ++m) {
            lse[m] = log_sum_exp(partials + 2 * m, op.partials.rows, op.partials.ld);
            loss[m] = targets[m] < 0 ? Compute(0) : lse[m] - target_logit[m];
        }
    };
    switch (op.partials.dtype) {
        case DType::f64: return run(double());
        case DType::f32: return run(float());
        default:
            throw Error(text(FinishCrossEntropy::name, ": operand partials is ", name_of(op.partials.dtype),
                             ", expected f64 or f32"));
    }
}

void execute(const CrossEntropyBackward& op, const Memory& memory) {
    dispatch_storage(CrossEntropyBackward::name, op.logits.dtype, [&]<class Types>(Types) {
        using Storage = typename Types::Storage;
        using Compute = typename Types::Compute;
        const std::int64_t rows = op.logits.rows, columns = op.logits.cols;
        require(op.vocab >= 1 && op.vocab <= columns, CrossEntropyBackward::name, ": vocab ", op.vocab,
                " is outside [1, ", columns, "], the columns of logits");
        const Operands operands(CrossEntropyBackward::name, memory);
        auto* logits = operands.get<Storage>("logits", op.logits, rows, columns);
        const auto* lse = operands.get<Compute>("lse", op.lse, 1, rows);
        const auto* targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
        auto* dot = operands.get<Compute>("dot", op.dot, 1, rows);
        for (std::int64_t m = 0; m < rows; ++m)
            require(targets[m] < op.vocab, CrossEntropyBackward::name, ": targets[", m, "] is ", targets[m],
                    ", not below the vocabulary ", op.vocab);
#pragma omp parallel for
        for (std::int64_t m = 0; m < rows; ++m) {
            Storage* row = logits + m * op.logits.ld;
            if (targets[m] < 0) {
                std::fill(row, row + columns, Storage{});
                dot[m] = 0;
            } else {
                dot[m] = cross_entropy_backward_row<Storage, Compute>(row, op.vocab, columns, lse[m], targets[m]);
            }
        }
    });
}

}  // namespace coda::cpu
