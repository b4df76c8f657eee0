// UpdateScales and CountF8 of the Hopper executor against cpu::run: the same bits everywhere.
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Magnitudes of all exponents, some of them 0 or not finite, in a history of which some columns are 0.
UpdateScales made(Buffers& buffers, std::int32_t tensors, std::int64_t window, std::int32_t pairs, int step, int skip) {
    UpdateScales op;
    op.amax = buffers.vector(DType::f32, tensors);
    op.history = buffers.matrix(DType::f32, window, tensors, tensors + 3);
    op.step = buffers.scalar(DType::i32, step);
    op.skip = buffers.scalar(DType::i32, skip);
    op.scales = buffers.vector(DType::f32, tensors);
    for (std::int32_t t = 0; t < tensors; ++t) {
        const double near = t % 3 == 0 ? 448 : t % 3 == 1 ? 448 + 0x1p-15 : 300 + t % 200;
        const double magnitude = std::ldexp(near, t % 157 - 80);
        const double none = t % 2 == 0 ? std::numeric_limits<double>::infinity() : NAN;
        buffers.set(op.amax, 0, t, t % 11 == 5 ? none : t % 7 == 4 ? 0 : magnitude);
        for (std::int64_t row = 0; row < window; ++row)
            buffers.set(op.history, row, t, t % 5 < 2 ? 0 : magnitude * std::exp2(static_cast<double>(row % 4) - 2));
    }
    for (std::int32_t p = 0; p < pairs; ++p) op.pairs.push_back({p % (tensors + 1) - 1, p * 7 % tensors});
    if (pairs > 0) op.products = buffers.vector(DType::f32, pairs);
    return op;
}

void require_same(const Op& op, const Buffers& got, const Buffers& expected) {
    for_each_operand(op, [&](const char* name, const View& view, Access) {
        INFO(name);
        REQUIRE((got.bits(view) == expected.bits(view)));
    });
}

}  // namespace

TEST_CASE("UpdateScales on the GPU has the CPU's bits", "[gpu][f8]") {
    if (!has_hopper()) return;
    struct Sizes {
        std::int32_t tensors, window, pairs;
    };
    for (const auto& [tensors, window, pairs] :
         {Sizes{1, 1, 0}, Sizes{160, 16, 192}, Sizes{2048, 3, 448}, Sizes{2049, 2, 449}, Sizes{4500, 5, 1500}})
        for (const int step : {0, 1, 7, 2147483647})
            for (const int skip : {0, 1}) {
                INFO(tensors << " tensors, " << window << " steps, " << pairs << " pairs, step " << step);
                Buffers expected, got;
                const UpdateScales op = made(expected, tensors, window, pairs, step, skip);
                cpu::run(op, expected.memory());
                run_on_gpu(made(got, tensors, window, pairs, step, skip), got);
                require_same(op, got, expected);
            }
}

TEST_CASE("CountF8 on the GPU has the CPU's counts: of every code, and of rows of any number", "[gpu][f8]") {
    if (!has_hopper()) return;
    const DType format = GENERATE(DType::f8e4m3, DType::f8e5m2);
    const auto compare = [&](std::int64_t rows, std::int64_t columns, std::int64_t gap, std::int64_t every) {
        Buffers expected, got;
        CountF8 op;
        for (Buffers* buffers : {&expected, &got}) {
            View bytes = buffers->matrix(DType::u8, rows, columns, columns + gap);
            for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t column = 0; column < columns; ++column)
                    buffers->set(bytes, row, column, static_cast<double>((row * 31 + column) % 256));
            bytes.dtype = format;
            op.codes = bytes;
            op.counts = buffers->vector(DType::i32, 2);
        }
        op.every = every;
        cpu::run(op, expected.memory());
        run_on_gpu(op, got);
        INFO(rows << " x " << columns << ", gap " << gap << ", every " << every);
        require_same(op, got, expected);
    };
    for (const std::int64_t rows : {1, 7, 8, 9, 300, 9000})
        for (const std::int64_t columns : {16, 256, 512, 528, 2064})
            for (const std::int64_t every : {1, 3}) compare(rows, columns, rows % 2 == 0 ? 0 : 16, every);
}

TEST_CASE("CountF8 on the GPU refuses rows of broken vectors", "[f8]") {
    Buffers buffers;
    CountF8 op;
    op.codes = buffers.matrix(DType::f8e4m3, 4, 32, 40);
    op.counts = buffers.vector(DType::i32, 2);
    CHECK_THROWS_WITH(hopper::choose(Op(op)), Catch::Contains("rows of codes (32 elements, 40 apart)"));
}
