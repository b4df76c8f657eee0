// The head's ops with flags and the exact way, and softmax in fp64, for their tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/run.h"
#include "tests/kernels/fixture.h"

namespace coda::test {

inline constexpr std::int64_t kVocab = 91, kPadded = 128, kTile = 40;

/// The four ops. a is the identity, so w holds the logits, column by column, and a logit is what storage rounds it to.
struct ExactHead {
    Buffers buffers;
    DType storage, compute;
    TargetLogit target;
    LinearCrossEntropy product;
    FinishCrossEntropy finish;
    ExactCrossEntropy exact;

    ExactHead(DType storage_type, const std::vector<int>& targets, std::int64_t vocab = kVocab,
              std::int64_t padded = kPadded)
        : storage(storage_type), compute(compute_of(storage_type)) {
        const auto rows = static_cast<std::int64_t>(targets.size());
        const View a = buffers.matrix(storage, rows, rows);
        for (std::int64_t m = 0; m < rows; ++m)
            for (std::int64_t k = 0; k < rows; ++k) buffers.set(a, m, k, m == k);
        const View w = buffers.random(storage, padded, rows, -4, 4);
        target.a = product.a = exact.a = a;
        target.table = exact.table = w.row_slice(0, vocab);
        product.w = w;
        target.targets = finish.targets = exact.targets = buffers.indices(targets);
        target.target_logit = product.target_logit = finish.target_logit = buffers.vector(compute, rows);
        product.exponentials = finish.exponentials = exact.exponentials =
            buffers.matrix(storage, rows, padded, padded + 3);
        product.sums = finish.sums = buffers.matrix(compute, (padded + kTile - 1) / kTile, 2 * rows);
        product.vocab = vocab;
        product.tile = kTile;
        finish.scale = exact.scale = buffers.vector(compute, rows);
        finish.dot = exact.dot = buffers.vector(compute, rows);
        finish.loss = exact.loss = buffers.vector(compute, rows);
        finish.flags = exact.flags = buffers.vector(DType::i32, rows);
    }

    std::int64_t rows() const { return target.a.rows; }
    std::int64_t vocab() const { return product.vocab; }
    int target_of(std::int64_t m) const { return static_cast<int>(buffers.get(target.targets, 0, m)); }
    double logit(std::int64_t m, std::int64_t v) const { return buffers.get(product.w, v, m); }
    void set_logit(std::int64_t m, std::int64_t v, double value) { buffers.set(product.w, v, m, value); }
    double stored(std::int64_t m, std::int64_t v) const { return buffers.get(exact.exponentials, m, v); }
    double loss(std::int64_t m) const { return buffers.get(exact.loss, 0, m); }
    double scale(std::int64_t m) const { return buffers.get(exact.scale, 0, m); }
    double dot(std::int64_t m) const { return buffers.get(exact.dot, 0, m); }
    double flag(std::int64_t m) const { return buffers.get(exact.flags, 0, m); }

    void run_fast() {
        cpu::run(target, buffers.memory());
        cpu::run(product, buffers.memory());
        cpu::run(finish, buffers.memory());
    }
    void run() {
        run_fast();
        cpu::run(exact, buffers.memory());
    }
    void evaluate() {
        product.exponentials = finish.exponentials = exact.exponentials = View{};
        finish.scale = finish.dot = exact.scale = exact.dot = View{};
        buffers.poison(exact.loss);
        run();
    }
};

/// Softmax of one row of logits, in double.
struct Softmax {
    double loss, others;              // -log p[target]; 1 - p[target], without a difference
    std::vector<double> probability;  // 0 for the target

    Softmax(const std::vector<double>& logits, int target) : probability(logits) {
        const auto t = static_cast<std::size_t>(target);
        double largest = -INFINITY, sum = 0;
        for (std::size_t v = 0; v < logits.size(); ++v)
            if (v != t) largest = std::max(largest, logits[v]);
        for (std::size_t v = 0; v < logits.size(); ++v)
            sum += probability[v] = v == t ? 0 : std::exp(logits[v] - largest);
        const double excess = largest - logits[t] + std::log(sum);
        loss = excess > 0 ? excess + std::log1p(std::exp(-excess)) : std::log1p(std::exp(excess));
        others = 1 / (1 + std::exp(-excess));
        for (double& p : probability) p *= others / sum;
    }
};

inline Softmax softmax(const ExactHead& head, std::int64_t m) {
    std::vector<double> logits;
    for (std::int64_t v = 0; v < head.vocab(); ++v) logits.push_back(head.logit(m, v));
    return {logits, head.target_of(m)};
}

}  // namespace coda::test
