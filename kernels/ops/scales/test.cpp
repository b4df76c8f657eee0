// UpdateScales and CountF8 against their formulas in plain loops.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

UpdateScales made(Buffers& buffers, DType dtype, std::int32_t tensors, std::int64_t window) {
    UpdateScales op;
    op.amax = buffers.vector(dtype, tensors);
    op.history = buffers.matrix(dtype, window, tensors, tensors + 3);
    op.step = buffers.scalar(DType::i32, 0);
    op.skip = buffers.scalar(DType::i32, 0);
    op.scales = buffers.vector(dtype, tensors);
    op.products = buffers.vector(dtype, tensors);
    for (std::int32_t t = 0; t < tensors; ++t) {
        buffers.set(op.amax, 0, t, 0);
        for (std::int64_t row = 0; row < window; ++row) buffers.set(op.history, row, t, 0);
        op.pairs.push_back({t - 1, tensors - 1 - t});
    }
    return op;
}

/// The largest power of two in range whose product with `largest` is at most 448, by trying all.
double scale_for(double largest) {
    if (largest == 0) return 1;
    double scale = 0x1p-63;
    while (scale < 0x1p63 && 2 * scale * largest <= 448) scale *= 2;
    return scale;
}

void require_scales(const Buffers& buffers, const UpdateScales& op, const std::vector<double>& largest) {
    const auto scale = [&](std::int32_t index) {
        return index == kNormalised ? 4.0 : buffers.get(op.scales, 0, index);
    };
    for (std::int64_t t = 0; t < op.amax.cols; ++t) {
        const auto i = static_cast<std::size_t>(t);
        INFO("tensor " << t << ", largest " << largest[i]);
        REQUIRE(buffers.get(op.scales, 0, t) == scale_for(largest[i]));
        const auto [left, right] = op.pairs[i];
        REQUIRE(buffers.get(op.products, 0, t) * scale(left) * scale(right) == 1);
    }
}

CountF8 counted(Buffers& buffers, std::int64_t every, DType format = DType::f8e4m3) {
    CountF8 op;
    const double size = format == DType::f8e5m2 ? 80000 : 600;
    op.codes = buffers.random(format, 21, 48, -size, size, 55);
    for (std::int64_t row = 0; row < 21; ++row) buffers.set(op.codes, row, row, row % 2 == 0 ? 0.0 : -0.0);
    op.counts = buffers.vector(DType::i32, 2);
    op.every = every;
    return op;
}

}  // namespace

TEST_CASE("UpdateScales takes the largest power of two that fits, and its products undo the scales exactly") {
    for (const DType dtype : {DType::f64, DType::f32}) {
        // Both sides of 448 times a power of two, of every exponent that scales have and some beyond.
        std::vector<double> magnitudes{0, 0x1p-126, 0x1p-149, 0x1.fffffep127, 1};
        for (int exponent = -75; exponent <= 75; ++exponent)
            for (const double near : {448.0, 448 + 0x1p-15, 448 - 0x1p-15, 256.0, 511.0})
                magnitudes.push_back(std::ldexp(near, exponent));
        const auto tensors = static_cast<std::int32_t>(magnitudes.size());
        Buffers buffers;
        const UpdateScales op = made(buffers, dtype, tensors, 1);
        for (std::int32_t t = 0; t < tensors; ++t) buffers.set(op.amax, 0, t, magnitudes[static_cast<std::size_t>(t)]);
        cpu::run(op, buffers.memory());
        require_scales(buffers, op, magnitudes);
    }
}

TEST_CASE("UpdateScales remembers W steps, forgets the one before them, and starts the next step from 0") {
    constexpr std::int64_t kWindow = 3;
    for (const DType dtype : {DType::f64, DType::f32}) {
        Buffers buffers;
        const UpdateScales op = made(buffers, dtype, 40, kWindow);
        std::vector<std::vector<double>> steps;
        for (int step = 1; step <= 9; ++step) {
            const View amax = buffers.random(dtype, 1, 40, 0, std::exp2(step % 4));
            steps.push_back(buffers.values(amax));
            for (std::int64_t t = 0; t < 40; ++t) buffers.set(op.amax, 0, t, buffers.get(amax, 0, t));
            buffers.set(op.step, 0, 0, step);
            cpu::run(op, buffers.memory());
            REQUIRE((buffers.values(op.amax) == std::vector<double>(40, 0.0)));
            std::vector<double> largest(40, 0.0);
            for (std::size_t back = 0; back < kWindow && back < steps.size(); ++back)
                for (std::size_t t = 0; t < 40; ++t)
                    largest[t] = std::fmax(largest[t], steps[steps.size() - 1 - back][t]);
            require_scales(buffers, op, largest);
            for (std::int64_t t = 0; t < 40; ++t)
                REQUIRE(buffers.get(op.history, step % kWindow, t) == steps.back()[static_cast<std::size_t>(t)]);
            REQUIRE(buffers.gaps_untouched(op.history));
        }
    }
}

TEST_CASE("a skipped step and an amax that is not finite leave the history, and amax begins again at 0") {
    for (const DType dtype : {DType::f64, DType::f32}) {
        Buffers buffers;
        const UpdateScales op = made(buffers, dtype, 3, 2);
        for (std::int64_t t = 0; t < 3; ++t) buffers.set(op.history, 0, t, 2);
        for (const double amax : {8.0, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
            buffers.set(op.skip, 0, 0, amax == 8 ? 2 : 0);
            for (std::int64_t t = 0; t < 3; ++t) buffers.set(op.amax, 0, t, amax);
            const std::string before = buffers.bits(op.history);
            cpu::run(op, buffers.memory());
            REQUIRE((buffers.bits(op.history) == before));
            REQUIRE((buffers.values(op.amax) == std::vector<double>(3, 0.0)));
            require_scales(buffers, op, {2, 2, 2});
        }
    }
}

TEST_CASE("UpdateScales refuses pairs that do not fit its tensors") {
    Buffers buffers;
    const UpdateScales right = made(buffers, DType::f32, 4, 2);
    const auto message = [&](const auto& change) -> std::string {
        UpdateScales op = right;
        change(op);
        try {
            cpu::run(op, buffers.memory());
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    CHECK(message([](UpdateScales& op) { op.pairs[2][1] = 4; }) == "UpdateScales: a pair names scale 4 of 4");
    CHECK(message([](UpdateScales& op) { op.pairs[2][0] = -2; }) == "UpdateScales: a pair names scale -2 of 4");
    CHECK(message([](UpdateScales& op) { op.pairs.pop_back(); }) ==
          "UpdateScales: operand products is (1, 4), expected (1, 3)");
}

TEST_CASE("CountF8 counts codes at the end of the range and codes of 0") {
    const DType format = GENERATE(DType::f8e4m3, DType::f8e5m2);
    const double largest = format == DType::f8e5m2 ? 57344 : 448;
    for (const std::int64_t every : {1, 2, 5, 100}) {
        Buffers buffers;
        CountF8 op = counted(buffers, every, format);
        buffers.set(op.codes, 0, 40, std::numeric_limits<double>::quiet_NaN());
        op.codes.order = ColumnOrder::paired;  // either order
        cpu::run(op, buffers.memory());
        std::int64_t ends = 0, zeros = 0;
        for (std::int64_t row = 0; row < 21; row += every)
            for (std::int64_t column = 0; column < 48; ++column) {
                const double value = buffers.get(op.codes, row, column);
                ends += std::isnan(value) || std::fabs(value) == largest ? 1 : 0;
                zeros += value == 0 ? 1 : 0;
            }
        REQUIRE((ends > 0 && zeros > 0));
        REQUIRE(buffers.get(op.counts, 0, 0) == static_cast<double>(ends));
        REQUIRE(buffers.get(op.counts, 0, 1) == static_cast<double>(zeros));
    }
    require_same_bits_for_any_thread_count([](Buffers& buffers) { return counted(buffers, 1); });
}

TEST_CASE("CountF8 refuses rows that it cannot count") {
    Buffers buffers;
    CountF8 op = counted(buffers, 0);
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CountF8: every is 0, not positive");
    op.every = 1;
    op.codes.dtype = DType::u8;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CountF8: operand codes is u8, expected f8e4m3 or f8e5m2");
    op.codes.dtype = DType::f8e4m3;
    op.codes.cols = 40;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CountF8: N is 40, not a multiple of 16");
    op.codes.rows = std::int64_t{1} << 20;
    op.codes.cols = op.codes.ld = 1 << 12;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()),
                      Catch::Contains("CountF8: it would count 4294967296 codes") && Catch::Contains("every = 1"));
}
