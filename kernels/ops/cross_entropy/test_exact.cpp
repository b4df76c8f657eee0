// The head's ops for rows that the fast form does not hold: flags, and loss and gradient from logits computed again,
// against softmax in fp64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "kernels/math/cross_entropy.h"
#include "tests/catch.h"
#include "tests/kernels/exact_head.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

enum Row {
    usual,
    nats168,
    nats5000,
    nats30000,
    target_high,
    offset100,
    offset1000,
    offset10000,
    offset_minus,
    limit,
    sure,
    ignored,
    kRows
};

/// Every kind of row. Those not named have logits in [-4, 4).
ExactHead every_row(DType storage) {
    std::vector<int> targets(kRows, 7);
    targets[ignored] = -100;
    ExactHead head(storage, targets);
    const auto shift = [&](Row row, double by) {
        for (std::int64_t v = 0; v < kVocab; ++v) head.set_logit(row, v, head.logit(row, v) * 2 + by);
    };
    head.set_logit(nats168, 60, head.logit(nats168, 7) + 168);
    head.set_logit(nats5000, 60, 5000);
    head.set_logit(nats30000, 60, 15000);
    head.set_logit(nats30000, 7, -15000);
    head.set_logit(target_high, 7, 2000);  // p of the others is 0 in double
    shift(offset100, 100);
    shift(offset1000, 1000);
    shift(offset10000, 10000);
    shift(offset_minus, -1000);
    head.set_logit(limit, 7, 0);
    head.set_logit(limit, 60, 117);  // just beyond
    shift(sure, 300);
    head.set_logit(sure, 7, 330);
    shift(ignored, 1000);
    return head;
}

bool expects_flag(Row row) { return row != usual && row != offset100 && row != ignored; }

}  // namespace

// Logits are exact here, and the row is computed in double, where the largest logit is rounded (in_double). Apart from
// that only results are rounded: loss, scale and dot to the compute type, elements to storage. bf16 storage moves an
// element by one step at most, 2^-7 of itself.
TEST_CASE("loss and gradient are softmax's, however far the target and however large the logits") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        ExactHead head = every_row(storage);
        head.run();
        const double eps = epsilon(head.compute), step = storage == DType::bf16 ? epsilon(storage) : eps;
        for (const std::int64_t m : {std::int64_t{nats168}, std::int64_t{nats5000}, std::int64_t{nats30000},
                                     std::int64_t{target_high}, std::int64_t{offset1000}, std::int64_t{offset10000},
                                     std::int64_t{offset_minus}, std::int64_t{limit}, std::int64_t{sure}}) {
            INFO(name_of(storage) << ", row " << m);
            CHECK(head.flag(m) == 1);
            const Softmax expected = softmax(head, m);
            double size = 0;
            for (std::int64_t v = 0; v < kVocab; ++v) size = std::max(size, std::abs(head.logit(m, v)));
            const double in_double = 8 * epsilon(DType::f64) * size;
            CHECK(std::abs(head.loss(m) - expected.loss) <= 4 * eps * expected.loss + in_double);
            CHECK(std::abs(head.scale(m) - expected.others) <= (4 * eps + in_double) * expected.others + 0x1p-149);
            const int target = head.target_of(m);
            CHECK(head.stored(m, target) == -1);
            double sum = 0, share = 0, dot = 0, terms = 0, largest = 0;
            for (std::int64_t v = 0; v < kVocab; ++v) {
                const double g = head.stored(m, v), p = expected.probability[static_cast<std::size_t>(v)];
                sum += g;
                dot += head.scale(m) * g * head.logit(m, v);
                terms += head.scale(m) * std::abs(g * (head.logit(m, v) - head.logit(m, target)));
                if (v == target) continue;
                CHECK(g >= 0);
                // In units of the row's scale, as stored; an element may be subnormal.
                const double q = expected.others > 0 ? p / expected.others : -1;
                if (q >= 0) CHECK(std::abs(g - q) <= (step + 64 * eps + in_double) * q + 0x1p-133);
                share += std::abs(g);
                largest = std::max(largest, g);
            }
            CHECK(std::abs(share - 1) <= step * largest + kVocab * eps);
            // A row as stored sums to 0 up to half a step of its largest element, from which the others take over.
            CHECK(std::abs(sum) <= (storage == DType::bf16 ? step / 2 * largest : 0) + kVocab * eps);
            CHECK(std::abs(head.dot(m) - dot) <= 8 * eps * (std::abs(dot) + terms) + kVocab * in_double);
            for (std::int64_t v = kVocab; v < kPadded; ++v) CHECK(head.stored(m, v) == 0);
        }
        CHECK(head.loss(ignored) == 0);
        CHECK(head.scale(ignored) == 0);
        for (int row = 0; row < kRows; ++row) CHECK((head.flag(row) == 1) == expects_flag(static_cast<Row>(row)));
        CHECK(head.buffers.gaps_untouched(head.exact.exponentials));
        const std::string losses = head.buffers.bits(head.exact.loss);
        head.evaluate();
        CHECK((head.buffers.bits(head.exact.loss) == losses));
    }
}

TEST_CASE("rows that are not flagged keep every bit") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        ExactHead with = every_row(storage), without = every_row(storage);
        with.run();
        without.finish.flags = View{};
        without.run_fast();
        for (const Row m : {usual, offset100, ignored}) {
            CHECK(with.loss(m) == without.loss(m));
            CHECK(with.scale(m) == without.scale(m));
            CHECK(with.dot(m) == without.dot(m));
            for (std::int64_t v = 0; v < kPadded; ++v) CHECK(with.stored(m, v) == without.stored(m, v));
        }
    }
}

// The condition has no false negative: the largest exponential that is not flagged is below the limit, and the logits
// are finite.
TEST_CASE("what needs the exact way") {
    using cross_entropy::needs_exact;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double one = std::ldexp(1.0, -cross_entropy::kShift);
    CHECK(!needs_exact(one, 0, 0));
    CHECK(!needs_exact(one, 0, -256));
    CHECK(needs_exact(one, 0, 256.001));
    CHECK(needs_exact(one, 0, -257));
    CHECK(!needs_exact(0x1p108, 0x1p115, 0));
    // exp of a distance at the limit may come out some ulp below 2^110.
    CHECK(needs_exact(0x1p110 * (1 - 1e-5), 0x1p117, 0));
    for (const double bad : {kInfinity, std::nan("")}) CHECK(needs_exact(bad, 0, 0));
    for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
        CHECK(needs_exact(one, bad, 0));
        CHECK(needs_exact(one, 0, bad));
    }
}

TEST_CASE("a flagged row with a logit that is not finite has no loss and no gradient") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const double bad : {kInfinity, -kInfinity, std::nan("")})
            for (const std::int64_t column : {3, 50}) {  // the target's, and another
                ExactHead head(storage, {3});
                head.set_logit(0, column, bad);
                head.run();
                CHECK(head.flag(0) == 1);
                CHECK(std::isnan(head.loss(0)));
                CHECK(std::isnan(head.scale(0)));
                CHECK(std::isnan(head.dot(0)));
                for (std::int64_t v = 0; v < kVocab; ++v) CHECK(std::isnan(head.stored(0, v)));
                head.evaluate();
                CHECK(std::isnan(head.loss(0)));
            }
}

TEST_CASE("a vocabulary of one token has loss 0 and no gradient") {
    ExactHead head(DType::bf16, {0}, 1, 64);
    head.set_logit(0, 0, 1000);
    head.run();
    CHECK(head.flag(0) == 1);
    CHECK((head.loss(0) == 0 && head.scale(0) == 0 && head.dot(0) == 0));
}

// Each element is one of the two numbers around its share, and what is lost is at most half a step of the largest so
// far: for an element that would have to carry more than half its step, the next number is nearer.
TEST_CASE("rounding that carries keeps the sum") {
    std::mt19937_64 bits(3);
    std::uniform_real_distribution<double> uniform;
    for (const double power : {0.0, 1.0, 8.0, 40.0}) {  // from equal shares to a few large ones
        std::vector<double> shares;
        double total = 0;
        for (int v = 0; v < 5000; ++v) total += shares.emplace_back(std::pow(1 - 0.5 * uniform(bits), power));
        float carry = 0;
        double lost = 0, largest = 0;
        for (const double share : shares) {
            const auto q = static_cast<float>(share / total);
            Bf16 g;
            g.bits = cross_entropy::round_carrying(q, carry);
            const double step = std::ldexp(1.0, std::ilogb(q) - 7);
            CHECK(std::abs(static_cast<double>(static_cast<float>(g)) - static_cast<double>(q)) <= step);
            lost += static_cast<double>(q) - static_cast<double>(static_cast<float>(g));
            largest = std::max(largest, step);
        }
        CHECK(std::abs(lost) <= 0.51 * largest);
        CHECK(std::abs(lost - static_cast<double>(carry)) <= 1e-3 * largest);
    }
    float carry = 1e-3f;
    CHECK(cross_entropy::round_carrying(0, carry) == 0);
    CHECK(carry == 1e-3f);
    CHECK(std::isnan(std::bit_cast<float>(std::uint32_t{cross_entropy::round_carrying(NAN, carry)} << 16)));
}

TEST_CASE("ExactCrossEntropy gives the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        require_same_bits_for_any_thread_count([&](Buffers& buffers) {
            ExactHead head = every_row(storage);
            head.run_fast();
            buffers = std::move(head.buffers);
            return head.exact;
        });
}

TEST_CASE("ExactCrossEntropy refuses a target outside the vocabulary") {
    ExactHead head = every_row(DType::f32);
    head.run();
    head.buffers.set(head.exact.targets, 0, 3, kVocab);
    CHECK_THROWS_WITH(cpu::run(head.exact, head.buffers.memory()),
                      "ExactCrossEntropy: targets[3] is 91, must be negative (ignored) or below 91, the rows of table");
}
