// RoundWeights on the GPU against cpu::run: the same bits.
#include "kernels/cpu/run.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("RoundWeights on the GPU has the CPU's bits", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const auto& [rows, width] : {std::pair{1, 8}, {37, 264}, {300, 2048}, {5, 2056}, {64, 8192}})
        for (const std::int64_t gap : {0, 8})
            for (const bool folds : {true, false}) {
                INFO(rows << " x " << width << ", gap " << gap << ", gamma " << folds);
                const auto made = [&](Buffers& buffers) {
                    RoundWeights op;
                    op.master = buffers.random(DType::f32, rows, width, -3, 3, width + gap);
                    if (folds) {
                        op.gamma = buffers.random(DType::f32, 1, width, -2, 2);
                        buffers.set(op.gamma, 0, width / 2, 0);
                    }
                    op.working = buffers.matrix(DType::bf16, rows, width, width + gap);
                    return op;
                };
                Buffers expected, got;
                const RoundWeights op = made(expected);
                cpu::run(op, expected.memory());
                run_on_gpu(made(got), got);
                REQUIRE((got.bits(op.working) == expected.bits(op.working)));
                REQUIRE(got.gaps_untouched(op.working));
            }
}
