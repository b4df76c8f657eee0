// CentreRows of the Hopper executor against cpu::run. The sums have another order: a mean of d values below 2 is off by
// d 2^-24 on either side, and an element lies a step of bf16 from the other at most.
#include <cmath>

#include "kernels/cpu/run.h"
#include "kernels/ops/centre_rows/op.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("CentreRows on the GPU", "[gpu]") {
    if (!has_hopper()) return;
    struct Shape {
        std::int64_t rows, width, gap;
    };
    for (const auto& [rows, width, gap] :
         {Shape{1, 8, 0}, Shape{37, 72, 8}, Shape{300, 2048, 0}, Shape{65, 4104, 16}}) {
        const auto made = [&](Buffers& buffers) {
            return CentreRows{.dx = buffers.random(DType::bf16, rows, width, -1, 2, width + gap)};
        };
        Buffers expected, got, again;
        const CentreRows op = made(expected);
        cpu::run(op, expected.memory());
        run_on_gpu(made(got), got);
        run_on_gpu(made(again), again);
        INFO("CentreRows of " << rows << " rows of " << width);
        CHECK((got.bits(op.dx) == again.bits(op.dx)));
        const double mean_error = static_cast<double>(width) * 0x1p-22;
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t j = 0; j < width; ++j)
                REQUIRE(std::abs(got.get(op.dx, row, j) - expected.get(op.dx, row, j)) <=
                        0x1p-7 * std::abs(expected.get(op.dx, row, j)) + mean_error);
        CHECK(got.gaps_untouched(op.dx));
    }
}
