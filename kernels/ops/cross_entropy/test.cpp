// TargetLogit, LinearCrossEntropy and FinishCrossEntropy, one after the other as the head runs them, against the
// definition of softmax in fp64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cpu/run.h"
#include "kernels/math/cross_entropy.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

// How far a target's logit may lie below the largest of its row for the formula to be exact.
const double kReach = cross_entropy::kLimit * std::numbers::ln2;
const double kUnit = std::ldexp(1.0, -cross_entropy::kShift);  // the target's own exponential

/// Relative error of a sum of pairs of the compute type, in lanes and then in any order, to its sum of magnitudes: 1e-5
/// in float.
double summation(DType compute) { return 84 * epsilon(compute); }

/// The three ops and their operands. a is the identity, so w holds the logits, column by column, and the GEMM rounds
/// nothing.
struct Head {
    Buffers buffers;
    DType storage, compute;
    View logits;  // (M, V) f64, as the storage type rounds them
    TargetLogit target;
    LinearCrossEntropy product;
    FinishCrossEntropy finish;

    Head(DType storage_type, const std::vector<int>& targets, std::int64_t vocab, std::int64_t padded,
         std::int64_t tile)
        : storage(storage_type), compute(compute_of(storage_type)) {
        const auto rows = static_cast<std::int64_t>(targets.size());
        const View a = buffers.matrix(storage, rows, rows);
        for (std::int64_t m = 0; m < rows; ++m)
            for (std::int64_t k = 0; k < rows; ++k) buffers.set(a, m, k, m == k);
        const View w = buffers.random(storage, padded, rows, -8, 8);
        target.a = product.a = a;
        target.table = w.row_slice(0, vocab);
        product.w = w;
        target.targets = finish.targets = buffers.indices(targets);
        target.target_logit = product.target_logit = finish.target_logit = buffers.vector(compute, rows);
        product.exponentials = finish.exponentials = buffers.matrix(storage, rows, padded, padded + 3);
        product.sums = finish.sums = buffers.matrix(compute, (padded + tile - 1) / tile, 2 * rows, 2 * rows + 3);
        product.vocab = vocab;
        product.tile = tile;
        finish.scale = buffers.vector(compute, rows);
        finish.dot = buffers.vector(compute, rows);
        finish.loss = buffers.vector(compute, rows);
    }

    std::int64_t rows() const { return target.a.rows; }
    int target_of(std::int64_t m) const { return static_cast<int>(buffers.get(target.targets, 0, m)); }
    double logit(std::int64_t m, std::int64_t v) const { return buffers.get(product.w, v, m); }
    void set_logit(std::int64_t m, std::int64_t v, double value) { buffers.set(product.w, v, m, value); }
    double exponential(std::int64_t m, std::int64_t v) const { return buffers.get(product.exponentials, m, v); }

    void run_product() {
        cpu::run(target, buffers.memory());
        cpu::run(product, buffers.memory());
    }
    void run() {
        run_product();
        cpu::run(finish, buffers.memory());
    }
};

/// Softmax of one row. A logit more than kReach above the target's counts as kReach above it.
struct Softmax {
    double loss;        // -log p[target]
    double others = 0;  // 1 - p[target], without a difference
    std::vector<double> probability;

    Softmax(const Head& head, std::int64_t m) {
        const int target = head.target_of(m);
        std::vector<double> logits;
        for (std::int64_t v = 0; v < head.product.vocab; ++v)
            logits.push_back(std::min(head.logit(m, v), head.logit(m, target) + kReach));
        const double largest = *std::max_element(logits.begin(), logits.end());
        double total = 0;
        for (const double value : logits) total += probability.emplace_back(std::exp(value - largest));
        for (std::size_t v = 0; v < probability.size(); ++v) {
            probability[v] /= total;
            if (v != static_cast<std::size_t>(target)) others += probability[v];
        }
        const double p = probability[static_cast<std::size_t>(target)];
        // Where p is nearly 1, log p follows from 1 - p; where p underflows, from the logits.
        loss = p > 0.5 ? -std::log1p(-others) : largest + std::log(total) - head.logit(m, target);
    }
};

constexpr std::int64_t kVocab = 91, kPadded = 128, kTile = 40;  // the last tile has no valid column
enum Row { ordinary, sure, ignored, wide, high, beyond, also_ignored, last_column };
const std::vector<int> kTargets{5, 0, -100, 44, 90, 17, -1, 90};

/// Every kind of row; those not named have logits in [-8, 8).
Head every_row(DType storage) {
    Head head(storage, kTargets, kVocab, kPadded, kTile);
    head.set_logit(sure, 0, 33);  // the loss is about 1e-9
    for (std::int64_t v = 0; v < kVocab; ++v) {
        for (const Row row : {ignored, wide}) head.set_logit(row, v, 7.5 * head.logit(row, v));  // +-60
    }
    head.set_logit(wide, 44, 0.25);
    head.set_logit(high, 90, -50);
    head.set_logit(high, 3, 50);
    head.set_logit(beyond, 17, 0);
    head.set_logit(beyond, 60, 300);
    return head;
}

}  // namespace

// The exponent d = logit - t: logit, t and d are each off by eps / 2, together by at most 2 eps of the row's largest
// magnitude. That is the relative error of an exponential, and bounds the relative error of the sum S. exp, sums and
// factors: 32 eps. Storage rounds an exponential by half its epsilon, so S too, and the target's element once more.
// What shares a tile with the target's exponential, and is summed with it, is off by eps of that exponential. An
// exponential may be subnormal.
TEST_CASE("the head's ops are softmax and its gradient") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        INFO(name_of(storage));
        Head head = every_row(storage);
        head.run_product();
        std::vector<double> as_made;
        for (std::int64_t v = 0; v < kPadded; ++v) as_made.push_back(head.exponential(ignored, v));
        cpu::run(head.finish, head.buffers.memory());
        const double eps = epsilon(head.compute), rounding = storage == head.compute ? 0 : epsilon(storage) / 2;
        const double smallest = storage == DType::f64 ? 0 : storage == DType::f32 ? 0x1p-149 : 0x1p-133;
        for (std::int64_t m = 0; m < head.rows(); ++m) {
            INFO("row " << m);
            const int target = head.target_of(m);
            const double loss = head.buffers.get(head.finish.loss, 0, m);
            const double scale = head.buffers.get(head.finish.scale, 0, m);
            const double dot = head.buffers.get(head.finish.dot, 0, m);
            for (std::int64_t v = kVocab; v < kPadded; ++v) REQUIRE(head.exponential(m, v) == 0);
            if (target < 0) {
                REQUIRE(head.buffers.get(head.target.target_logit, 0, m) == 0);
                REQUIRE((loss == 0 && scale == 0 && dot == 0));
                for (std::int64_t v = 0; v < kVocab; ++v) REQUIRE(std::isfinite(head.exponential(m, v)));
                continue;
            }
            const Softmax expected(head, m);
            const double t = head.logit(m, target);
            double largest = 0, sum = 0, terms = 0, row_sum = 0, row_terms = 0;
            for (std::int64_t v = 0; v < kVocab; ++v) largest = std::max(largest, std::abs(head.logit(m, v)));
            const double relative = eps * (4 * largest + 32) + 2 * rounding;
            REQUIRE(std::abs(loss - expected.loss) <= relative * expected.others + eps * (8 + expected.loss));
            for (std::int64_t v = 0; v < kVocab; ++v) {
                const double stored = head.exponential(m, v), g = stored * scale;
                const double p = expected.probability[static_cast<std::size_t>(v)];
                if (v == target)
                    REQUIRE(std::abs(g + expected.others) <= (relative + rounding) * expected.others + 8 * eps);
                else
                    REQUIRE(std::abs(g - p) <= relative * p + smallest * scale);
                sum += head.logit(m, v) * g;
                terms += (std::abs(head.logit(m, v)) + std::abs(t)) * std::abs(g);
                row_sum += g;
                row_terms += std::abs(g);
            }
            // dot is computed from the gradient as stored; the error of S counts with the target's logit.
            REQUIRE(std::abs(dot - sum) <= summation(head.compute) * (terms + std::abs(t)));
            // The rounding of the target's element, and the rounding of S.
            REQUIRE(std::abs(row_sum) <= rounding * expected.others + summation(head.compute) * (1 + row_terms));
        }
        for (std::int64_t v = 0; v < kPadded; ++v)
            REQUIRE(head.exponential(ignored, v) == as_made[static_cast<std::size_t>(v)]);
        REQUIRE(head.buffers.gaps_untouched(head.product.exponentials));
        REQUIRE(head.buffers.gaps_untouched(head.product.sums));
    }
}

// The rows have the properties that their names promise.
TEST_CASE("a loss of 1e-9 and one beyond the limit are exact in double") {
    Head head = every_row(DType::f64);
    const Softmax sure_row(head, sure), beyond_row(head, beyond);
    head.run();
    const auto loss = [&](Row row) { return head.buffers.get(head.finish.loss, 0, row); };
    CHECK(sure_row.loss < 3e-9);
    CHECK(sure_row.loss > 1e-11);
    // eps of the target's exponential: the sum is only 1e-9 above it.
    CHECK(std::abs(loss(sure) - sure_row.loss) <= 8 * epsilon(DType::f64));
    CHECK(std::abs(-head.exponential(sure, 0) * head.buffers.get(head.finish.scale, 0, sure) - sure_row.others) <=
          8 * epsilon(DType::f64));
    CHECK(std::abs(loss(beyond) - kReach) <= 1e-12 * kReach);
    CHECK(std::abs(loss(high) - 100) < 1e-10);
}

// The model is sure of one target among 128256 columns, in float. Loss and gradient are 2e-9 of the target's
// exponential, which a float sum over tiles would lose. The target's own tile has no other exponential above 0. |logit|
// < 33: exponents are off by 3 * 33 / 2 eps, to which the error of a tile's sum is added.
TEST_CASE("loss and gradient of a sure prediction keep float's relative accuracy over a thousand tiles") {
    constexpr std::int64_t kColumns = 128256, kWidth = 128;
    constexpr int kTarget = 777;
    Head head(DType::f32, {kTarget}, kColumns, kColumns, kWidth);
    for (std::int64_t v = 0; v < kColumns; ++v) {
        const bool same_tile = v / kWidth == kTarget / kWidth;
        head.set_logit(0, v, same_tile ? -200 : head.logit(0, v) / 8 - 32);
    }
    head.set_logit(0, kTarget, 0.5);
    const Softmax expected(head, 0);
    CHECK(expected.loss < 4e-9);
    head.run();
    const double tolerance = 50 * epsilon(DType::f32) + summation(DType::f32);
    const auto close = [&](double value, double to) { return std::abs(value - to) <= tolerance * std::abs(to); };
    const double scale = head.buffers.get(head.finish.scale, 0, 0);
    CHECK(close(head.buffers.get(head.finish.loss, 0, 0), expected.loss));
    CHECK(close(head.exponential(0, kTarget) * scale, -expected.others));
    double dot = 0;
    for (std::int64_t v = 0; v < kColumns; ++v) {
        const double p = expected.probability[static_cast<std::size_t>(v)];
        if (v != kTarget && p > 1e-30) REQUIRE(close(head.exponential(0, v) * scale, p));
        dot += head.logit(0, v) * (v == kTarget ? -expected.others : p);
    }
    CHECK(close(head.buffers.get(head.finish.dot, 0, 0), dot));
}

// A logarithm is off by one unit of its last place, and so is its sum with another where S is 1 or more. Where S is the
// target's own exponential, the loss is 0, and what S has above that is the whole loss.
TEST_CASE("the loss of a sum keeps its relative accuracy near zero") {
    const auto check = []<class T>(T, T sum, double expected) {
        CHECK(std::abs(static_cast<double>(cross_entropy::loss(sum)) - expected) <=
              2 * static_cast<double>(std::numeric_limits<T>::epsilon()) * expected);
    };
    CHECK(cross_entropy::loss(static_cast<float>(kUnit)) == 0);
    for (const int bits : {1, 10, 20, 23}) {
        const double others = std::ldexp(1.0, -bits);
        check(float(), static_cast<float>(kUnit * (1 + others)), std::log1p(others));
        check(double(), kUnit * (1 + others), std::log1p(others));
    }
    check(double(), kUnit * (1 + 0x1p-50), 0x1p-50);
    for (const int exponent : {-57, -20, -1, 0, 1, 68, 127}) {
        const double expected = (exponent + cross_entropy::kShift) * std::numbers::ln2;
        check(float(), std::ldexp(1.0f, exponent), expected);
        check(double(), std::ldexp(1.0, exponent), expected);
    }
}

// Multiplied floats are exact in double, and their sum is off by at most 2048 * 2^-53 of the magnitudes. Only the
// result is rounded.
TEST_CASE("TargetLogit is the target's logit, summed in double") {
    constexpr std::int64_t kRows = 7, kWidth = 2048, kTokens = 30;
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        const DType compute = compute_of(storage);
        for (const bool with_rstd : {false, true}) {
            Buffers buffers;
            TargetLogit op;
            op.a = buffers.random(storage, kRows, kWidth, -1, 1, kWidth + 3);
            op.table = buffers.random(storage, kTokens, kWidth, -1, 1, kWidth + 5);
            op.targets = buffers.indices({29, -1, 0, 7, 7, -100, 3});
            if (with_rstd) op.rstd = buffers.random(compute, 1, kRows, 0.5, 2);
            op.target_logit = buffers.vector(compute, kRows);
            cpu::run(op, buffers.memory());
            for (std::int64_t m = 0; m < kRows; ++m) {
                const auto target = static_cast<std::int64_t>(buffers.get(op.targets, 0, m));
                const double found = buffers.get(op.target_logit, 0, m);
                if (target < 0) {
                    CHECK(found == 0);
                    continue;
                }
                const double rstd = with_rstd ? buffers.get(op.rstd, 0, m) : 1;
                long double sum = 0;
                double terms = 0;
                for (std::int64_t k = 0; k < kWidth; ++k) {
                    const double term = buffers.get(op.a, m, k) * buffers.get(op.table, target, k);
                    sum += static_cast<long double>(term);
                    terms += std::abs(term);
                }
                const double expected = rstd * static_cast<double>(sum);
                CHECK(std::abs(found - expected) <=
                      epsilon(compute) / 2 * 1.01 * std::abs(expected) + 2048 * 0x1p-53 * rstd * terms);
            }
        }
    }
}

// 255 exponentials are 1.0038 times the target's, and bf16 rounds them to the target's own; -255 of those is a bf16
// number. A row whose sum is not 0 has summed exponentials that are not the stored ones.
TEST_CASE("a row's stored gradient sums to zero, whatever rounding did to the exponentials") {
    constexpr std::int64_t kTokens = 256;
    Head head(DType::bf16, {200}, kTokens, kTokens, 64);
    for (std::int64_t v = 0; v < kTokens; ++v) head.set_logit(0, v, v == 200 ? 0 : 0.0038);
    head.run();
    for (std::int64_t v = 0; v < kTokens; ++v) {
        INFO(v);
        CHECK(head.exponential(0, v) == (v == 200 ? -255 * kUnit : kUnit));
    }
    CHECK(head.buffers.get(head.finish.scale, 0, 0) == 1 / (256 * kUnit));
}

TEST_CASE("an evaluation, without exponentials, has the same losses") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        Head head = every_row(storage);
        head.run();
        const std::string losses = head.buffers.bits(head.finish.loss);
        head.product.exponentials = View{};
        head.finish.exponentials = View{};
        head.finish.scale = head.finish.dot = View{};
        head.buffers.poison(head.finish.loss);
        head.buffers.poison(head.product.sums);
        head.run();
        CHECK((head.buffers.bits(head.finish.loss) == losses));
    }
}

// exp of the distance is limited, d itself is not. So a logit that is not finite shows in Σ e d and thereby in the
// loss, with and without a backward pass.
TEST_CASE("logits that are not finite leave a loss and sums that are not") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
            Head head(storage, {3}, kVocab, kPadded, kTile);
            head.set_logit(0, 50, bad);
            head.run();
            CHECK_FALSE(std::isfinite(head.buffers.get(head.product.sums, 1, 1)));
            CHECK_FALSE(std::isfinite(head.buffers.get(head.finish.dot, 0, 0)));
            CHECK(std::isnan(head.buffers.get(head.finish.loss, 0, 0)));
            head.buffers.poison(head.finish.loss);
            head.product.exponentials = head.finish.exponentials = head.finish.scale = head.finish.dot = View{};
            head.run();
            CHECK(std::isnan(head.buffers.get(head.finish.loss, 0, 0)));
        }
    }
}

TEST_CASE("cross-entropy ops give the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        const auto head_in = [&](Buffers& buffers) {
            Head head = every_row(storage);
            head.run_product();
            buffers = std::move(head.buffers);
            return head;
        };
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return head_in(buffers).target; });
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return head_in(buffers).finish; });
    }
}

TEST_CASE("a target outside the vocabulary is an error") {
    Head head = every_row(DType::f32);
    head.run_product();
    head.buffers.set(head.target.targets, 0, 3, kVocab);  // a padded row of the weight
    CHECK_THROWS_WITH(cpu::run(head.target, head.buffers.memory()),
                      "TargetLogit: targets[3] is 91, must be negative (ignored) or below 91, the rows of table");
    head.buffers.set(head.target.targets, 0, 3, kPadded);
    CHECK_THROWS_WITH(cpu::run(head.finish, head.buffers.memory()),
                      "FinishCrossEntropy: targets[3] is 128, must be negative (ignored) or below 128, the columns of "
                      "exponentials");
}
