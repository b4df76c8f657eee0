// SumSquares, GradNorm and AdamW against their formulas in fp64, and the statistics of stochastic rounding.
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "kernels/math/random.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The ops that make the norm of a gradient.
struct Norm {
    SumSquares squares;
    GradNorm op;

    Norm(Buffers& buffers, DType gradient, std::int64_t count, double max_norm, double loss = 2) {
        squares.grad = buffers.random(gradient, 1, count);
        squares.sums = op.sums = buffers.vector(DType::f64, SumSquares::sums_of(count));
        op.loss = buffers.scalar(gradient, loss);
        op.drop_above = buffers.scalar(gradient, kInfinity);
        op.norm = buffers.matrix(gradient, 1, 1);
        op.clip = buffers.matrix(gradient, 1, 1);
        op.skip = buffers.scalar(DType::i32, 0);
        op.max_norm = max_norm;
    }
    void run(Buffers& buffers) const {
        cpu::run(squares, buffers.memory());
        cpu::run(op, buffers.memory());
    }
};

/// AdamW at step 3 over `count` parameters.
AdamW adamw(Buffers& buffers, DType master, DType moments, DType storage, std::int64_t count) {
    const auto scalar = [&](double value) { return buffers.scalar(master, value); };
    AdamW op;
    op.beta1 = 0.9;
    op.beta2 = 0.95;
    op.eps = 1e-3;
    op.weight_decay = 0.1;
    op.seed = 99;
    op.grad = buffers.random(master, 1, count);
    op.master = buffers.random(master, 1, count);
    op.m = buffers.random(moments, 1, count);
    op.v = buffers.random(moments, 1, count, 0, 1);
    op.working = buffers.vector(storage, count);
    op.lr = scalar(0.125);
    op.correction1 = scalar(1 / (1 - std::pow(0.9, 3)));
    op.correction2 = scalar(1 / (1 - std::pow(0.95, 3)));
    op.clip = scalar(0.75);
    op.step = buffers.scalar(DType::i32, 3);
    op.skip = buffers.scalar(DType::i32, 0);
    return op;
}

}  // namespace

// Squares are summed in double, so the norm's error is one rounding to its type plus 1e-13 of the sum.
TEST_CASE("GradNorm is the Euclidean norm, and clip brings it to the limit") {
    for (const DType gradient : {DType::f64, DType::f32})
        for (const std::int64_t count : {1, 1000, 200000}) {
            Buffers buffers;
            const Norm norm(buffers, gradient, count, 0.25);
            const GradNorm& op = norm.op;
            double square = 0;
            for (const double g : buffers.values(norm.squares.grad)) square += g * g;
            norm.run(buffers);
            const double tolerance = std::max(epsilon(gradient), 1e-13);
            REQUIRE(std::abs(buffers.get(op.norm, 0, 0) / std::sqrt(square) - 1) <= tolerance);
            REQUIRE(std::abs(buffers.get(op.clip, 0, 0) / std::min(1.0, 0.25 / std::sqrt(square)) - 1) <= tolerance);
            REQUIRE(buffers.get(op.skip, 0, 0) == 0);
        }
}

TEST_CASE("GradNorm does not clip a small norm, a zero one, or without a limit") {
    Buffers buffers;
    const Norm small(buffers, DType::f32, 10, 1e6), off(buffers, DType::f32, 1000, 0), zero(buffers, DType::f32, 10, 1);
    for (std::int64_t i = 0; i < 10; ++i) buffers.set(zero.squares.grad, 0, i, 0);
    for (const Norm* norm : {&small, &off, &zero}) {
        norm->run(buffers);
        REQUIRE(buffers.get(norm->op.clip, 0, 0) == 1);
    }
    REQUIRE(buffers.get(zero.op.norm, 0, 0) == 0);
}

TEST_CASE("GradNorm's skip flag is set by anything non-finite and never cleared") {
    for (const double bad : {kNan, kInfinity}) {
        Buffers buffers;
        const Norm loss(buffers, DType::f32, 100, 1, bad);
        loss.run(buffers);
        REQUIRE(buffers.get(loss.op.skip, 0, 0) == 1);
        const Norm gradient(buffers, DType::f32, 100, 1);
        buffers.set(gradient.squares.grad, 0, 57, bad);
        gradient.run(buffers);
        REQUIRE(buffers.get(gradient.op.skip, 0, 0) == 1);
        buffers.set(gradient.squares.grad, 0, 57, 1);
        gradient.run(buffers);
        REQUIRE(buffers.get(gradient.op.skip, 0, 0) == 1);
    }
}

TEST_CASE("GradNorm drops the update of a norm above the limit, for only that step") {
    for (const DType gradient : {DType::f64, DType::f32}) {
        Buffers buffers;
        const Norm made(buffers, gradient, 1000, 1);
        const GradNorm& op = made.op;
        const auto skip_with = [&](double limit) {
            buffers.set(op.drop_above, 0, 0, limit);
            made.run(buffers);
            return buffers.get(op.skip, 0, 0);
        };
        REQUIRE(skip_with(kInfinity) == 0);
        const double norm = buffers.get(op.norm, 0, 0);
        REQUIRE(skip_with(norm) == 0);
        REQUIRE(skip_with(norm * (1 - epsilon(gradient))) == GradNorm::kDropped);
        REQUIRE(skip_with(-1) == GradNorm::kDropped);
        REQUIRE(skip_with(2 * norm) == 0);

        // A negative limit drops a gradient of zero, which a limit of zero lets pass.
        for (std::int64_t i = 0; i < 1000; ++i) buffers.set(made.squares.grad, 0, i, 0);
        REQUIRE(skip_with(0) == 0);
        REQUIRE(skip_with(-1) == GradNorm::kDropped);

        // What is not finite stays marked, whatever the limit says then and later.
        buffers.set(made.squares.grad, 0, 3, kInfinity);
        REQUIRE(skip_with(1) == GradNorm::kNonFinite + GradNorm::kDropped);
        buffers.set(made.squares.grad, 0, 3, kNan);
        REQUIRE(skip_with(1) == GradNorm::kNonFinite);
        buffers.set(made.squares.grad, 0, 3, 4);
        REQUIRE(skip_with(2) == GradNorm::kNonFinite + GradNorm::kDropped);
        REQUIRE(skip_with(kInfinity) == GradNorm::kNonFinite);
    }
}

// About twelve operations on numbers near 1 (eps = 1e-3 keeps the quotient below 1000): 1e-13 in double, 32 eps in
// float.
TEST_CASE("AdamW is its formula, decay, clip and working copy included") {
    for (const auto& [master, storage] :
         {std::pair{DType::f64, DType::f64}, std::pair{DType::f32, DType::f32}, std::pair{DType::f32, DType::bf16}})
        for (const std::int64_t count : {1, 7000}) {
            Buffers buffers;
            const AdamW op = adamw(buffers, master, master, storage, count);
            const auto g = buffers.values(op.grad), w = buffers.values(op.master);
            const auto m = buffers.values(op.m), v = buffers.values(op.v);
            cpu::run(op, buffers.memory());
            const double tolerance = master == DType::f64 ? 1e-13 : 32 * epsilon(master);
            for (std::int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const double clipped = 0.75 * g[at];
                const double first = m[at] + (1 - 0.9) * (clipped - m[at]);
                const double second = v[at] + (1 - 0.95) * (clipped * clipped - v[at]);
                const double mean = first / (1 - 0.9 * 0.9 * 0.9);
                const double deviation = std::sqrt(second / (1 - 0.95 * 0.95 * 0.95));
                const double expected = w[at] - 0.125 * mean / (deviation + 1e-3) - 0.125 * 0.1 * w[at];
                REQUIRE(std::abs(buffers.get(op.m, 0, i) - first) < tolerance);
                REQUIRE(std::abs(buffers.get(op.v, 0, i) - second) < tolerance);
                const double updated = buffers.get(op.master, 0, i);
                REQUIRE(std::abs(updated - expected) < tolerance * (1 + std::abs(expected)));
                REQUIRE(buffers.get(op.working, 0, i) ==
                        (storage == DType::bf16 ? static_cast<double>(Bf16(static_cast<float>(updated))) : updated));
            }
        }
}

// Blocks of 2048 elements begin and end within rows of the matrices. Some weights of norms are factors of two matrices;
// norm_factor keeps those that are smallest away from 0.
TEST_CASE("AdamW's working copy has the weights of norms in the columns of the matrices after them") {
    constexpr std::int64_t kCount = 8800, kNorms = 200;
    for (const auto& [master, storage] :
         {std::pair{DType::f64, DType::f64}, std::pair{DType::f32, DType::f32}, std::pair{DType::f32, DType::bf16}}) {
        Buffers buffers;
        AdamW op = adamw(buffers, master, master, storage, kCount);
        op.norms = buffers.random(master, 1, kNorms);
        op.first_norm = kCount;
        op.folds = {{.first = 0, .rows = 20, .cols = 70, .gamma = 8801},
                    {.first = 1400, .rows = 2, .cols = 60, .gamma = 8900},
                    {.first = 1600, .rows = 60, .cols = 120, .gamma = 8875}};
        const double small[] = {0.0, 0x1p-41, -0x1p-41, 0x1p-40, -0x1p-40, -0x1p-39};
        for (std::int64_t i = 0; i < 6; ++i) buffers.set(op.norms, 0, 120 + i, small[i]);
        const auto old = buffers.values(op.master);
        cpu::run(op, buffers.memory());

        std::vector<double> factor(kCount, 1);
        for (const NormFold& fold : op.folds)
            for (std::int64_t i = 0; i < fold.rows * fold.cols; ++i) {
                const double gamma = buffers.get(op.norms, 0, fold.gamma - kCount + i % fold.cols);
                factor[static_cast<std::size_t>(fold.first + i)] =
                    std::copysign(std::max(std::abs(gamma), 0x1p-40), gamma);
            }
        for (std::int64_t i = 0; i < kCount; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double w = buffers.get(op.master, 0, i), product = w * factor[at];
            REQUIRE(w != old[at]);
            const double rounded = master == DType::f32 ? static_cast<double>(static_cast<float>(product)) : product;
            REQUIRE(buffers.get(op.working, 0, i) ==
                    (storage == DType::bf16 ? static_cast<float>(Bf16(static_cast<float>(rounded))) : rounded));
        }
    }
}

// Parts begin and end within rows of the folded matrices, and within blocks of 2048 elements.
TEST_CASE("AdamW over parts has the bits of AdamW over the whole") {
    constexpr std::int64_t kCount = 8800, kFirst = 1000;
    for (const DType moments : {DType::f32, DType::bf16}) {
        Buffers buffers;
        AdamW whole = adamw(buffers, DType::f32, moments, DType::bf16, kCount);
        whole.first = kFirst;  // of a larger model
        whole.norms = buffers.random(DType::f32, 1, 120);
        whole.first_norm = 20000;
        whole.folds = {{.first = 800, .rows = 20, .cols = 70, .gamma = 20050},
                       {.first = 4000, .rows = 60, .cols = 120, .gamma = 20000}};
        std::vector<AdamW> parts;
        const std::int64_t ends[] = {0, 4, 1300, 3504, 5000, 8796, kCount};
        const auto copied = [&](const View& view, std::int64_t first, std::int64_t count) {
            const View copy = buffers.vector(view.dtype, count);
            for (std::int64_t i = 0; i < count; ++i) buffers.set(copy, 0, i, buffers.get(view, 0, first + i));
            return copy;
        };
        for (std::size_t p = 0; p + 1 < std::size(ends); ++p) {
            AdamW part = whole;
            const std::int64_t first = ends[p], count = ends[p + 1] - first;
            part.first = kFirst + first;
            part.grad = copied(whole.grad, first, count);
            part.master = copied(whole.master, first, count);
            part.m = copied(whole.m, first, count);
            part.v = copied(whole.v, first, count);
            part.working = buffers.vector(DType::bf16, count);
            parts.push_back(part);
        }
        cpu::run(whole, buffers.memory());
        for (const AdamW& part : parts) {
            cpu::run(part, buffers.memory());
            const std::pair<View, View> results[] = {
                {whole.master, part.master}, {whole.m, part.m}, {whole.v, part.v}, {whole.working, part.working}};
            for (const auto& [of_whole, of_part] : results)
                for (std::int64_t i = 0; i < part.grad.cols; ++i)
                    REQUIRE(buffers.get(of_part, 0, i) == buffers.get(of_whole, 0, part.first - kFirst + i));
        }
    }
}

TEST_CASE("AdamW names a fold or a part that lies elsewhere") {
    const auto message = [](const std::vector<NormFold>& folds, std::int64_t first = 0) -> std::string {
        Buffers buffers;
        AdamW op = adamw(buffers, DType::f32, DType::f32, DType::bf16, 80);
        op.norms = buffers.random(DType::f32, 1, 20);
        op.first_norm = 80;
        op.first = first;
        op.folds = folds;
        try {
            cpu::run(op, buffers.memory());
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(message({{0, 4, 10, 80}, {40, 4, 10, 90}}).empty());
    CHECK_THAT(message({{0, 4, 10, 80}, {39, 4, 10, 90}}),
               Catch::Contains("the folded matrix (4, 10) at element 39 does not lie after the one before it, which "
                               "ends at 40"));
    CHECK_THAT(message({{0, 4, 10, 79}}), Catch::Contains("the norm's weight at 79 for the folded matrix at 0 does not "
                                                          "lie in the elements of norms, [80, 100)"));
    CHECK_THAT(message({{0, 4, 10, 91}}), Catch::Contains("the norm's weight at 91"));
    CHECK_THAT(message({}, 6),
               Catch::Contains("its first element is number 6 of the model, which is no multiple of 4"));
}

TEST_CASE("AdamW writes nothing where skip is set") {
    Buffers buffers;
    const AdamW op = adamw(buffers, DType::f32, DType::bf16, DType::bf16, 5000);
    const auto state = [&] {
        return buffers.bits(op.master) + buffers.bits(op.m) + buffers.bits(op.v) + buffers.bits(op.working);
    };
    const std::string before = state();
    for (const std::int32_t reasons : {GradNorm::kNonFinite, GradNorm::kDropped}) {
        buffers.set(op.skip, 0, 0, reasons);
        cpu::run(op, buffers.memory());
        REQUIRE((state() == before));
    }
    buffers.set(op.skip, 0, 0, 0);
    cpu::run(op, buffers.memory());
    REQUIRE((state() != before));
}

// With beta 0 the moments are g and g² exactly (g has 12 bits, so g² has 24), between two bf16 numbers one step apart.
TEST_CASE("bf16 moments are rounded without bias, by the words of (seed, step, element)") {
    constexpr std::int64_t kCount = 1 << 16;
    constexpr float kGradient =
        1 + 0x1.2cp-5f;  // 1.036621: 5/32 of the way between bf16 neighbours 1.03125, 1.0390625...
    Buffers buffers;
    AdamW op = adamw(buffers, DType::f32, DType::bf16, DType::bf16, kCount);
    op.beta1 = op.beta2 = 0;
    buffers.set(op.clip, 0, 0, 1);
    for (std::int64_t i = 0; i < kCount; ++i) buffers.set(op.grad, 0, i, kGradient);
    cpu::run(op, buffers.memory());

    const auto check = [&](const View& moment, float value, int shift) {
        double sum = 0;
        for (std::int64_t i = 0; i < kCount; ++i) {
            Bf16 expected;
            const std::uint32_t word = philox(99, 3, static_cast<std::uint64_t>(i / 4)).word[i % 4];
            expected.bits = stochastic_bf16(value, word >> shift);
            if (buffers.get(moment, 0, i) != static_cast<float>(expected)) FAIL("element " << i);
            sum += buffers.get(moment, 0, i) - value;
        }
        // One element's error has a deviation of at most half a step, 2^-8; the bound is five deviations of the mean.
        REQUIRE(std::abs(sum / kCount) < 5.0 / 256 / std::sqrt(static_cast<double>(kCount)));
        // Rounding to nearest would be off by the whole distance to the neighbour, about 60 times that.
        REQUIRE(std::abs(static_cast<float>(Bf16(value)) - value) > 1e-3);
    };
    check(op.m, kGradient, 0);
    check(op.v, kGradient * kGradient, 16);

    const std::string third = buffers.bits(op.m);
    cpu::run(op, buffers.memory());
    REQUIRE((buffers.bits(op.m) == third));
    buffers.set(op.step, 0, 0, 4);
    cpu::run(op, buffers.memory());
    REQUIRE((buffers.bits(op.m) != third));
}

TEST_CASE("optimizer ops give the same bits for any number of threads") {
    for (const DType master : {DType::f64, DType::f32}) {
        require_same_bits_for_any_thread_count([&](Buffers& b) { return Norm(b, master, 300000, 1).squares; });
        require_same_bits_for_any_thread_count([&](Buffers& b) { return adamw(b, master, master, master, 20000); });
        require_same_bits_for_any_thread_count(
            [&](Buffers& b) { return adamw(b, master, DType::bf16, master, 20000); });
    }
}

TEST_CASE("AdamW names a moment of the wrong type") {
    Buffers buffers;
    const AdamW op = adamw(buffers, DType::f32, DType::f64, DType::f32, 10);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "AdamW: operand m is f64, expected f32");
}

TEST_CASE("AdamW without a working copy updates the same weights and moments") {
    for (const DType moments : {DType::f32, DType::bf16}) {
        Buffers with, without;
        const AdamW op = adamw(with, DType::f32, moments, DType::bf16, 3000);
        AdamW other = adamw(without, DType::f32, moments, DType::bf16, 3000);
        other.working = {};
        cpu::run(op, with.memory());
        cpu::run(other, without.memory());
        for (const View& view : {View(op.master), View(op.m), View(op.v)})
            CHECK((with.bits(view) == without.bits(view)));
        CHECK((without.values(op.working) != with.values(op.working)));
    }
}
