// UnpackInt4 on the GPU against cpu::run: the same bits.
#include "kernels/cpu/run.h"
#include "kernels/ops/unpack_int4/test_units.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("UnpackInt4 on the GPU has the CPU's bits", "[gpu]") {
    if (!has_hopper()) return;
    for (const auto& [rows, width] : {std::pair{16, 128}, {48, 384}, {304, 2048}, {16, 2176}, {64, 8192}})
        for (const std::int64_t gap : {0, 8})
            for (const bool folds : {true, false}) {
                INFO(rows << " x " << width << ", gap " << gap << ", gamma " << folds);
                const auto made = [&](Buffers& buffers) {
                    UnpackInt4 op;
                    op.units = random_units(buffers, rows, width, gap);
                    if (folds) {
                        op.gamma = buffers.random(DType::f32, 1, width, -2, 2);
                        buffers.set(op.gamma, 0, width / 2, 0);
                    }
                    op.working = buffers.matrix(DType::bf16, rows, width, width + gap);
                    return op;
                };
                Buffers expected, got;
                const UnpackInt4 op = made(expected);
                cpu::run(op, expected.memory());
                run_on_gpu(made(got), got);
                REQUIRE((got.bits(op.working) == expected.bits(op.working)));
                REQUIRE(got.gaps_untouched(op.working));
            }
}

TEST_CASE("UnpackInt4 refuses rows that are not whole vectors", "[gpu]") {
    if (!has_hopper()) return;
    for (const bool units : {true, false}) {
        Buffers buffers;
        UnpackInt4 op;
        op.units = random_units(buffers, 32, 256, units ? 2 : 0);
        op.working = buffers.matrix(DType::bf16, 32, 256, units ? 256 : 260);
        CHECK_THAT(refusal(op, buffers), Catch::Contains(units ? "rows of units" : "rows of working"));
    }
}
