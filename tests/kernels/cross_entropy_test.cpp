// FinishCrossEntropy and CrossEntropyBackward against softmax as its definition says.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

const std::vector<int> kTargets{5, -100, 0, 90, -1, 17, 3};  // -100 and -1: ignored
constexpr std::int64_t kVocab = 91, kPadded = 128, kTile = 40;
const auto kRows = static_cast<std::int64_t>(kTargets.size());

struct Softmax {
    double lse;
    std::vector<double> probability;
};

Softmax softmax(const Buffers& buffers, const View& logits, std::int64_t row, std::int64_t vocab) {
    Softmax result{0, {}};
    double largest = buffers.get(logits, row, 0), total = 0;
    for (std::int64_t j = 1; j < vocab; ++j) largest = std::max(largest, buffers.get(logits, row, j));
    for (std::int64_t j = 0; j < vocab; ++j) {
        result.probability.push_back(std::exp(buffers.get(logits, row, j) - largest));
        total += result.probability.back();
    }
    for (double& value : result.probability) value /= total;
    result.lse = largest + std::log(total);
    return result;
}

/// Partials as LinearCrossEntropy leaves them for these logits; an ignored row's target_logit stays poison (NaN).
FinishCrossEntropy finish(Buffers& buffers, const View& logits, DType statistic) {
    FinishCrossEntropy op;
    const std::int64_t tiles = (kPadded + kTile - 1) / kTile;
    op.partials = buffers.matrix(statistic, tiles, 2 * kRows, 2 * kRows + 3);
    op.target_logit = buffers.vector(statistic, kRows);
    op.targets = buffers.indices(kTargets);
    op.lse = buffers.vector(statistic, kRows);
    op.loss = buffers.vector(statistic, kRows);
    for (std::int64_t m = 0; m < kRows; ++m) {
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
            double largest = -1e30, sum = 0;  // a tile of padding alone keeps these
            const std::int64_t last = std::min((tile + 1) * kTile, kVocab);
            for (std::int64_t j = tile * kTile; j < last; ++j) largest = std::max(largest, buffers.get(logits, m, j));
            for (std::int64_t j = tile * kTile; j < last; ++j) sum += std::exp(buffers.get(logits, m, j) - largest);
            buffers.set(op.partials, tile, 2 * m, largest);
            buffers.set(op.partials, tile, 2 * m + 1, sum);
        }
        const int target = kTargets[static_cast<std::size_t>(m)];
        if (target >= 0) buffers.set(op.target_logit, 0, m, buffers.get(logits, m, target));
    }
    return op;
}

CrossEntropyBackward backward(Buffers& buffers, DType storage) {
    CrossEntropyBackward op;
    op.logits = buffers.random(storage, kRows, kPadded, -8, 8, kPadded + 3);
    op.targets = buffers.indices(kTargets);
    op.lse = buffers.vector(compute_of(storage), kRows);
    op.dot = buffers.vector(compute_of(storage), kRows);
    op.vocab = kVocab;
    for (std::int64_t m = 0; m < kRows; ++m) buffers.set(op.lse, 0, m, softmax(buffers, op.logits, m, kVocab).lse);
    return op;
}

}  // namespace

// lse is near 10: its rounding, and that of the shift inside exp, is 16 eps / 2 each.
TEST_CASE("FinishCrossEntropy joins tiles and selects the valid rows") {
    for (const DType statistic : {DType::f64, DType::f32}) {
        Buffers buffers;
        const View logits = buffers.random(DType::f64, kRows, kPadded, -8, 8);
        const FinishCrossEntropy op = finish(buffers, logits, statistic);
        cpu::run(op, buffers.memory());
        const double tolerance = 16 * epsilon(statistic);
        for (std::int64_t m = 0; m < kRows; ++m) {
            const Softmax expected = softmax(buffers, logits, m, kVocab);
            REQUIRE(std::abs(buffers.get(op.lse, 0, m) - expected.lse) < tolerance);
            const int target = kTargets[static_cast<std::size_t>(m)];
            if (target < 0)
                REQUIRE(buffers.get(op.loss, 0, m) == 0);
            else
                REQUIRE(std::abs(buffers.get(op.loss, 0, m) +
                                 std::log(expected.probability[static_cast<std::size_t>(target)])) < tolerance);
        }
    }
}

// The exponent l - lse is below 32 in size, so its rounding is a relative error of 16 eps of p; storage rounds once
// more.
TEST_CASE("CrossEntropyBackward is softmax minus one-hot") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        Buffers buffers;
        const CrossEntropyBackward op = backward(buffers, storage);
        const auto logits = buffers.values(op.logits);
        std::vector<Softmax> rows;
        for (std::int64_t m = 0; m < kRows; ++m) rows.push_back(softmax(buffers, op.logits, m, kVocab));
        cpu::run(op, buffers.memory());
        const double compute = 32 * epsilon(compute_of(storage));
        for (std::int64_t m = 0; m < kRows; ++m) {
            const int target = kTargets[static_cast<std::size_t>(m)];
            double dot = 0, terms = 0;
            for (std::int64_t j = 0; j < kPadded; ++j) {
                double expected = 0;
                if (target >= 0 && j < kVocab)
                    expected = rows[static_cast<std::size_t>(m)].probability[static_cast<std::size_t>(j)] -
                               (j == target ? 1 : 0);
                const double g = buffers.get(op.logits, m, j);
                REQUIRE(std::abs(g - expected) <= (compute + epsilon(storage) / 2) * std::abs(expected) + compute / 32);
                if (expected == 0) REQUIRE(g == 0);
                const double term = logits[static_cast<std::size_t>(m * kPadded + j)] * g;  // of g as it is stored
                dot += term;
                terms += std::abs(term);
            }
            REQUIRE(std::abs(buffers.get(op.dot, 0, m) - dot) <= compute * terms);
            if (target < 0) REQUIRE(buffers.get(op.dot, 0, m) == 0);
        }
        REQUIRE(buffers.gaps_untouched(op.logits));
    }
}

// A target that the model is sure of: p is one minus 3e-4, and g = p - 1 must keep float's relative accuracy.
TEST_CASE("CrossEntropyBackward keeps the gradient of a sure prediction") {
    constexpr std::int64_t kColumns = 128256;
    Buffers buffers;
    CrossEntropyBackward op;
    op.logits = buffers.random(DType::f32, 1, kColumns, -1, 1);
    buffers.set(op.logits, 0, 777, 20);
    op.targets = buffers.indices({777});
    const Softmax expected = softmax(buffers, op.logits, 0, kColumns);
    op.lse = buffers.scalar(DType::f32, expected.lse);
    op.dot = buffers.vector(DType::f32, 1);
    op.vocab = kColumns;
    const auto logits = buffers.values(op.logits);
    cpu::run(op, buffers.memory());
    // lse itself is a float: the exact gradient for the given lse.
    const double lse = buffers.get(op.lse, 0, 0);
    double dot = 0, terms = 0;
    for (std::int64_t j = 0; j < kColumns; ++j) {
        const double logit = logits[static_cast<std::size_t>(j)];
        const double g = j == 777 ? std::expm1(logit - lse) : std::exp(logit - lse);
        REQUIRE(std::abs(buffers.get(op.logits, 0, j) - g) <= 32 * epsilon(DType::f32) * std::abs(g));
        dot += logit * g;
        terms += std::abs(logit * g);
    }
    REQUIRE(std::abs(buffers.get(op.dot, 0, 0) - dot) <= 32 * epsilon(DType::f32) * terms);
}

TEST_CASE("cross-entropy ops give the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return backward(buffers, storage); });
    for (const DType statistic : {DType::f64, DType::f32})
        require_same_bits_for_any_thread_count([&](Buffers& buffers) {
            return finish(buffers, buffers.random(DType::f64, kRows, kPadded, -8, 8), statistic);
        });
}

TEST_CASE("a target outside the vocabulary is an error") {
    Buffers buffers;
    const CrossEntropyBackward op = backward(buffers, DType::f32);
    buffers.set(op.targets, 0, 2, kVocab);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()),
                        "CrossEntropyBackward: targets[2] is 91, not below the vocabulary 91");
}

// 256 equal logits that bf16 rounds by 0.4 percent of their exponential: probabilities are 1/256, which bf16 holds, so
// whatever the gradient's sum is off by comes from lse and logits that are not of the same values.
TEST_CASE("a row's gradient sums to zero, as it is stored, whatever rounding did to the logits") {
    constexpr std::int64_t kTokens = 256, kWidth = 8, kTokenTile = 64;
    Buffers buffers;
    LinearCrossEntropy product;
    product.a = buffers.matrix(DType::bf16, 1, kWidth);
    product.w = buffers.matrix(DType::bf16, kTokens, kWidth);
    for (std::int64_t k = 0; k < kWidth; ++k) {
        buffers.set(product.a, 0, k, k == 0 ? 1.0078125 : 0);
        for (std::int64_t v = 0; v < kTokens; ++v) buffers.set(product.w, v, k, k == 0 ? 2.515625 : 0);
    }
    product.targets = buffers.indices({200});
    product.logits = buffers.matrix(DType::bf16, 1, kTokens);
    product.lse = buffers.matrix(DType::f32, kTokens / kTokenTile, 2);
    product.target_logit = buffers.vector(DType::f32, 1);
    product.vocab = kTokens;
    product.tile = kTokenTile;
    cpu::run(product, buffers.memory());

    FinishCrossEntropy finish_op;
    finish_op.partials = product.lse;
    finish_op.target_logit = product.target_logit;
    finish_op.targets = product.targets;
    finish_op.lse = buffers.vector(DType::f32, 1);
    finish_op.loss = buffers.vector(DType::f32, 1);
    cpu::run(finish_op, buffers.memory());

    CrossEntropyBackward backward_op;
    backward_op.logits = product.logits;
    backward_op.lse = finish_op.lse;
    backward_op.targets = product.targets;
    backward_op.dot = buffers.vector(DType::f32, 1);
    backward_op.vocab = kTokens;
    cpu::run(backward_op, buffers.memory());

    double sum = 0;
    for (std::int64_t v = 0; v < kTokens; ++v) sum += buffers.get(product.logits, 0, v);
    // 1/256 - 1 itself is rounded to bf16 by up to 2^-9.
    CHECK(std::abs(sum) <= 0x1p-9);
    for (std::int64_t v = 0; v < kTokens; ++v) {
        if (v != 200) CHECK(buffers.get(product.logits, 0, v) == 0x1p-8);
    }
}
