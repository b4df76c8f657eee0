// SumSquares, GradNorm and AdamW on the GPU against cpu::run.
//
// Tolerances, u = 2^-24. Both sides sum squares in double, 2^16 terms at most at a time, so sums differ by 2^-37 of
// themselves and norm and clip at most by the rounding to fp32: 2 u. AdamW is the same formula in fp32, but compilers
// fuse different multiplications with their sums. A fused multiply-add drops one rounding, so with g' = clip g
//   m: 3 u (|beta1 m| + |(1 - beta1) g'|)        v: 4 u v, whose terms are positive
//   master: 2 u (|w| + |w'|), m's error times lr correction1 / denominator, and 16 u of the quotient: half of v's error
//   and 2 u for each of seven operations
// The same random words round bf16 moments, so they are equal unless such a difference crosses a step; then they are
// neighbours.
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "kernels/math/random.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kUnit = 0x1p-24;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The ops that make the norm of a gradient.
struct Norm {
    SumSquares squares;
    GradNorm op;

    Norm(Buffers& buffers, std::int64_t count, double max_norm, double loss = 2) {
        squares.grad = buffers.random(DType::f32, 1, count);
        squares.sums = op.sums = buffers.vector(DType::f64, SumSquares::sums_of(count));
        op.loss = buffers.scalar(DType::f32, loss);
        op.drop_above = buffers.scalar(DType::f32, kInfinity);
        op.norm = buffers.matrix(DType::f32, 1, 1);
        op.clip = buffers.matrix(DType::f32, 1, 1);
        op.skip = buffers.scalar(DType::i32, 0);
        op.max_norm = max_norm;
    }
    void run_on_gpu(Buffers& buffers) const {
        coda::test::run_on_gpu(squares, buffers);
        coda::test::run_on_gpu(op, buffers);
    }
};

void check_norm(Buffers& buffers, const Norm& made) {
    const auto& [squares, op] = made;
    const auto same = [](double got, double expected, double tolerance) {
        return got == expected || (std::isnan(got) && std::isnan(expected)) ||
               std::abs(got - expected) <= tolerance * std::abs(expected);
    };
    INFO("norm of " << squares.grad.cols << ", limit " << op.max_norm);
    const std::string grad = buffers.bits(squares.grad);
    cpu::run(squares, buffers.memory());
    const std::vector<double> sums = buffers.values(squares.sums);
    buffers.poison(squares.sums);
    coda::test::run_on_gpu(squares, buffers);
    for (std::int64_t i = 0; i < squares.sums.cols; ++i)
        CHECK(same(buffers.get(squares.sums, 0, i), sums[static_cast<std::size_t>(i)], 0x1p-37));
    CHECK((buffers.bits(squares.grad) == grad));

    GpuCopy copy(buffers, operands_of(op));
    hopper::prepare(op, copy.memory())(nullptr);
    cpu::run(op, buffers.memory());
    const double norm = buffers.get(op.norm, 0, 0), clip = buffers.get(op.clip, 0, 0);
    const double skip = buffers.get(op.skip, 0, 0);
    copy.download();
    CHECK(same(buffers.get(op.norm, 0, 0), norm, 2 * kUnit));
    CHECK(same(buffers.get(op.clip, 0, 0), clip, 2 * kUnit));
    CHECK(buffers.get(op.skip, 0, 0) == skip);
}

/// AdamW at step 3.
AdamW adamw(Buffers& buffers, DType moments, std::int64_t count) {
    const auto scalar = [&](double value) { return buffers.scalar(DType::f32, value); };
    AdamW op;
    op.beta1 = 0.9;
    op.beta2 = 0.95;
    op.eps = 1e-3;
    op.weight_decay = 0.1;
    op.seed = 0x123456789abcdef;
    op.grad = buffers.random(DType::f32, 1, count);
    op.master = buffers.random(DType::f32, 1, count);
    op.m = buffers.random(moments, 1, count);
    op.v = buffers.random(moments, 1, count, 0, 1);
    op.working = buffers.vector(DType::bf16, count);
    op.lr = scalar(0.125);
    op.correction1 = scalar(1 / (1 - std::pow(0.9, 3)));
    op.correction2 = scalar(1 / (1 - std::pow(0.95, 3)));
    op.clip = scalar(0.75);
    op.step = buffers.scalar(DType::i32, 3);
    op.skip = buffers.scalar(DType::i32, 0);
    return op;
}

/// The same of a part of a model, with matrices that follow norms: one begins before the part, one ends after it, some
/// are adjacent, some apart, some end within a block of threads.
AdamW folded_adamw(Buffers& buffers, DType moments) {
    AdamW op = adamw(buffers, moments, 39000);
    op.first = 80000;
    op.norms = buffers.random(DType::f32, 1, 1000);
    op.first_norm = 500000;
    op.folds = {{.first = 79608, .rows = 100, .cols = 64, .gamma = 500000},
                {.first = 86408, .rows = 3, .cols = 200, .gamma = 500500},
                {.first = 87020, .rows = 1, .cols = 4, .gamma = 500996},
                {.first = 87024, .rows = 40, .cols = 640, .gamma = 500064},
                {.first = 112624, .rows = 100, .cols = 80, .gamma = 500700}};
    buffers.set(op.norms, 0, 500, -0x1p-60);  // closer to 0 than a factor may be
    return op;
}

/// How many bf16 steps lie between two numbers.
int steps_apart(double a, double b) {
    const auto position = [](double value) {
        const std::uint16_t bits = Bf16(static_cast<float>(value)).bits;
        return (bits & 0x8000) != 0 ? -(bits & 0x7fff) : static_cast<int>(bits);
    };
    return std::abs(position(a) - position(b));
}

template <class Make>
void check_update(DType moments, const Make& make) {
    Buffers before, expected, got, again;
    const AdamW op = make(before);
    for (Buffers* buffers : {&expected, &got, &again}) make(*buffers);
    const std::int64_t count = op.grad.cols;
    cpu::run(op, expected.memory());
    run_on_gpu(op, got);
    run_on_gpu(op, again);
    INFO("AdamW of " << count << ", moments " << name_of(moments));
    for (const View& view : operands_of(op)) CHECK((got.bits(view) == again.bits(view)));
    CHECK((got.bits(op.grad) == before.bits(op.grad)));

    const auto scalar = [&](const View& view) { return before.get(view, 0, 0); };
    std::int64_t crossed = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const double g = scalar(op.clip) * before.get(op.grad, 0, i), w = before.get(op.master, 0, i);
        const double m = before.get(op.m, 0, i), v = before.get(op.v, 0, i);
        const double next_m = 0.9 * m + 0.1 * g, next_v = 0.95 * v + 0.05 * g * g;
        const double m_error = 3 * kUnit * (0.9 * std::abs(m) + 0.1 * std::abs(g)), v_error = 4 * kUnit * next_v;
        if (moments == DType::f32) {
            REQUIRE(std::abs(got.get(op.m, 0, i) - expected.get(op.m, 0, i)) <= m_error);
            REQUIRE(std::abs(got.get(op.v, 0, i) - expected.get(op.v, 0, i)) <= v_error);
        } else {
            for (const View& moment : {View(op.m), View(op.v)}) {
                const int apart = steps_apart(got.get(moment, 0, i), expected.get(moment, 0, i));
                REQUIRE(apart <= 1);
                crossed += apart;
            }
        }
        const double quotient =
            scalar(op.lr) * scalar(op.correction1) / (std::sqrt(next_v * scalar(op.correction2)) + op.eps);
        const double updated = got.get(op.master, 0, i);
        REQUIRE(std::abs(updated - expected.get(op.master, 0, i)) <=
                2 * kUnit * (std::abs(w) + std::abs(updated)) + quotient * (m_error + 16 * kUnit * std::abs(next_m)));
        float factor = 1;
        for (const NormFold& fold : op.folds)
            if (op.first + i >= fold.first && op.first + i < fold.end()) {
                const std::int64_t column = (op.first + i - fold.first) % fold.cols;
                const auto gamma = static_cast<float>(got.get(op.norms, 0, fold.gamma - op.first_norm + column));
                factor = std::copysign(std::max(std::abs(gamma), 0x1p-40f), gamma);
            }
        REQUIRE(got.get(op.working, 0, i) == static_cast<float>(Bf16(static_cast<float>(updated) * factor)));
    }
    // A difference of about 4 u crosses one of the 2^8 steps of a binade once in 2^14 elements, and more often after
    // cancellation.
    CHECK(crossed <= 2 + count / 500);
}

}  // namespace

TEST_CASE("GradNorm on the GPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t count : {4, 8, 1000, 65536, 65540, 800008})
        for (const double limit : {0.0, 0.25, 1e6}) {
            Buffers buffers;
            check_norm(buffers, Norm(buffers, count, limit));
        }
    Buffers zero;
    const Norm none(zero, 64, 1);
    for (std::int64_t i = 0; i < 64; ++i) zero.set(none.squares.grad, 0, i, 0);
    check_norm(zero, none);
    Buffers large;  // squares beyond fp32
    const Norm huge(large, 64, 1);
    large.set(huge.squares.grad, 0, 9, 1e30);
    check_norm(large, huge);
}

TEST_CASE("GradNorm on the GPU marks anything non-finite and never clears the mark", "[gpu]") {
    if (!has_hopper()) return;
    for (const float bad : {kNan, kInfinity, -kInfinity})
        for (const std::int64_t at : {0, 65535, 65536, 70003}) {
            Buffers buffers;
            const Norm norm(buffers, 70004, 1);
            buffers.set(norm.squares.grad, 0, at, bad);
            check_norm(buffers, norm);
            REQUIRE(buffers.get(norm.op.skip, 0, 0) == 1);
            buffers.set(norm.squares.grad, 0, at, 1);
            norm.run_on_gpu(buffers);
            REQUIRE(buffers.get(norm.op.skip, 0, 0) == 1);
        }
    Buffers buffers;
    const Norm norm(buffers, 8, 1, kNan);
    check_norm(buffers, norm);
    REQUIRE(buffers.get(norm.op.skip, 0, 0) == 1);
}

TEST_CASE("GradNorm on the GPU drops the update of a norm above the limit, for only that step", "[gpu]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kCount = 70004;
    Buffers buffers;
    const Norm made(buffers, kCount, 1);
    const GradNorm& op = made.op;
    check_norm(buffers, made);
    const auto norm = static_cast<float>(buffers.get(op.norm, 0, 0));
    // The skip of the step before is still there each time.
    const auto skip_with = [&](float limit) {
        buffers.set(op.drop_above, 0, 0, limit);
        made.run_on_gpu(buffers);
        return buffers.get(op.skip, 0, 0);
    };
    const float least = std::nextafter(norm, 0.0f);
    CHECK(skip_with(norm) == 0);
    CHECK(skip_with(least) == GradNorm::kDropped);
    CHECK(skip_with(-1) == GradNorm::kDropped);
    CHECK(skip_with(2 * norm) == 0);
    for (std::int64_t i = 0; i < kCount; ++i) buffers.set(made.squares.grad, 0, i, 0);
    CHECK(skip_with(0) == 0);
    CHECK(skip_with(-1) == GradNorm::kDropped);
    buffers.set(made.squares.grad, 0, 65537, kInfinity);
    CHECK(skip_with(1) == GradNorm::kNonFinite + GradNorm::kDropped);
    buffers.set(made.squares.grad, 0, 65537, 4);
    CHECK(skip_with(kInfinity) == GradNorm::kNonFinite);
    CHECK(skip_with(2) == GradNorm::kNonFinite + GradNorm::kDropped);
}

TEST_CASE("AdamW on the GPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType moments : {DType::f32, DType::bf16}) {
        for (const std::int64_t count : {8, 1016, 70000})
            check_update(moments, [&](Buffers& buffers) { return adamw(buffers, moments, count); });
        check_update(moments, [&](Buffers& buffers) { return folded_adamw(buffers, moments); });
    }
}

TEST_CASE("AdamW on the GPU writes nothing where skip is set", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType moments : {DType::f32, DType::bf16})
        for (const std::int32_t reasons : {GradNorm::kNonFinite, GradNorm::kDropped}) {
            Buffers before, got;
            const AdamW op = folded_adamw(before, moments);
            folded_adamw(got, moments);
            for (Buffers* buffers : {&before, &got}) buffers->set(op.skip, 0, 0, reasons);
            run_on_gpu(op, got);
            for (const View& view : operands_of(op)) CHECK((got.bits(view) == before.bits(view)));
        }
}

TEST_CASE("AdamW on the GPU keeps moments that are not finite", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType moments : {DType::f32, DType::bf16}) {
        Buffers buffers;
        const AdamW op = adamw(buffers, moments, 64);
        const float bad[] = {kInfinity, -kInfinity, kNan};
        for (std::int64_t i = 0; i < 48; ++i) buffers.set(op.m, 0, i, bad[i % 3]);
        run_on_gpu(op, buffers);
        for (std::int64_t i = 0; i < 48; ++i) {
            const double m = buffers.get(op.m, 0, i);
            if (i % 3 == 2) CHECK(std::isnan(m));
            if (i % 3 != 2) CHECK(m == static_cast<double>(bad[i % 3]));
        }
    }
}

// With beta 0, m = g and v = g² exactly (g has 11 bits), so the words of (seed, step, element) decide every bit. The
// vectors are longer than 2^31 elements.
TEST_CASE("bf16 moments on the GPU are rounded by the words of seed, step and element", "[gpu]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 4096, kLooked = 4096;
    constexpr float kGradient = 0x1.03cp+0f;
    std::vector<std::byte*> bases;
    const auto vector = [&](DType dtype, std::int64_t count) {
        void* memory = nullptr;
        CUDA_CHECK(cudaMalloc(&memory, static_cast<std::size_t>(count * size_of(dtype))));
        CUDA_CHECK(cudaMemset(memory, 0, static_cast<std::size_t>(count * size_of(dtype))));
        bases.push_back(static_cast<std::byte*>(memory));
        return View{static_cast<BufferId>(bases.size() - 1), dtype, 0, 1, count, count, 0};
    };
    const auto scalar = [&](auto value) {
        const View view = vector(dtype_of<decltype(value)>, 1);
        CUDA_CHECK(cudaMemcpy(bases.back(), &value, sizeof value, cudaMemcpyHostToDevice));
        return view;
    };
    AdamW op;
    op.seed = 99;
    op.eps = 1;
    op.grad = vector(DType::f32, kCount);
    op.master = vector(DType::f32, kCount);
    op.m = vector(DType::bf16, kCount);
    op.v = vector(DType::bf16, kCount);
    op.working = vector(DType::bf16, kCount);
    op.lr = op.correction1 = op.correction2 = op.clip = scalar(1.0f);
    op.step = scalar(std::int32_t{3});
    op.skip = scalar(std::int32_t{0});
    SumSquares squares;
    squares.grad = op.grad;
    squares.sums = vector(DType::f64, SumSquares::sums_of(kCount));
    GradNorm norm;
    norm.sums = squares.sums;
    norm.loss = op.lr;
    norm.drop_above = scalar(kInfinity);
    norm.norm = scalar(0.0f);
    norm.clip = scalar(0.0f);
    norm.skip = op.skip;
    const std::vector<float> gradient(kLooked, kGradient);
    for (const std::int64_t first : {std::int64_t{0}, kCount - kLooked})
        CUDA_CHECK(cudaMemcpy(bases[0] + 4 * first, gradient.data(), 4 * kLooked, cudaMemcpyHostToDevice));

    const Memory memory(bases);
    hopper::prepare(squares, memory)(nullptr);
    hopper::prepare(norm, memory)(nullptr);
    hopper::prepare(op, memory)(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    float length = 0;
    CUDA_CHECK(cudaMemcpy(&length, memory.at<float>(norm.norm), 4, cudaMemcpyDeviceToHost));
    CHECK(length == static_cast<float>(std::sqrt(2.0 * kLooked) * static_cast<double>(kGradient)));
    for (const std::int64_t first : {std::int64_t{0}, kCount - kLooked}) {
        std::vector<Bf16> m(kLooked), v(kLooked);
        std::vector<float> master(kLooked);
        CUDA_CHECK(cudaMemcpy(m.data(), memory.at<Bf16>(op.m) + first, 2 * kLooked, cudaMemcpyDeviceToHost));
        CUDA_CHECK(cudaMemcpy(v.data(), memory.at<Bf16>(op.v) + first, 2 * kLooked, cudaMemcpyDeviceToHost));
        CUDA_CHECK(cudaMemcpy(master.data(), memory.at<float>(op.master) + first, 4 * kLooked, cudaMemcpyDeviceToHost));
        for (std::int64_t i = 0; i < kLooked; ++i) {
            const std::uint32_t random = philox(op.seed, 3, static_cast<std::uint64_t>((first + i) / 4)).word[i % 4];
            const auto at = static_cast<std::size_t>(i);
            REQUIRE(m[at].bits == stochastic_bf16(kGradient, random));
            REQUIRE(v[at].bits == stochastic_bf16(kGradient * kGradient, random >> 16));
            REQUIRE(std::abs(master[at] + kGradient / (kGradient + 1)) < 1e-6f);
        }
    }
    for (std::byte* base : bases) CUDA_CHECK(cudaFree(base));
}

TEST_CASE("the update on the GPU names what it cannot run", "[gpu]") {
    if (!has_hopper()) return;
    Buffers buffers;
    CHECK_THAT(refusal(adamw(buffers, DType::f32, 12), buffers),
               Catch::Contains("12 parameters are not a multiple of 8"));
    AdamW folded = adamw(buffers, DType::f32, 64);
    folded.norms = buffers.random(DType::f32, 1, 16);
    folded.first_norm = 64;
    folded.folds = {{.first = 0, .rows = 2, .cols = 6, .gamma = 64}};
    CHECK_THAT(refusal(folded, buffers),
               Catch::Contains("(2, 6) at 0 and its norm's weight at 64 are not whole vectors"));
    folded.folds = {{.first = 0, .rows = 2, .cols = 8, .gamma = 56}};
    CHECK_THAT(refusal(folded, buffers), Catch::Contains("weight at 56 for the folded matrix at 0 does not lie"));
    folded.folds.clear();
    folded.first = 18;
    CHECK_THAT(refusal(folded, buffers), Catch::Contains("number 18 of the model"));
    AdamW mixed = adamw(buffers, DType::f32, 16);
    mixed.v = buffers.vector(DType::bf16, 16);
    CHECK_THAT(refusal(mixed, buffers), Catch::Contains("operand v is bf16, expected f32"));
    CHECK_THAT(refusal(Norm(buffers, 6, 1).squares, buffers), Catch::Contains("whole vectors of 16 bytes"));
    SumSquares squares = Norm(buffers, 100000, 1).squares;
    squares.sums.cols -= 1;
    CHECK_THAT(refusal(squares, buffers), Catch::Contains("operand sums is (1, 1), expected (1, 2)"));
}

TEST_CASE("AdamW on the GPU without a working copy updates the same weights and moments", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType moments : {DType::f32, DType::bf16}) {
        Buffers with, without;
        const AdamW op = folded_adamw(with, moments);
        AdamW other = folded_adamw(without, moments);
        const std::string untouched = without.bits(op.working);
        other.working = {};
        run_on_gpu(op, with);
        run_on_gpu(other, without);
        for (const View& view : {View(op.master), View(op.m), View(op.v)})
            CHECK((with.bits(view) == without.bits(view)));
        CHECK((without.bits(op.working) == untouched));
    }
}
