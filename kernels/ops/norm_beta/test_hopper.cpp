// FoldBeta and BetaBackward on the GPU against cpu::run.
#include "tests/hopper/gpu_copy.h"
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the bias of a norm in a projection's bias: ragged rows and chunks, gaps, a weight of 0", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t rows : {1, 7, 8, 200})
        for (const std::int64_t width : {8, 264, 2048, 2056, 20008})
            for (const bool has_bias : {false, true}) {
                Case made;
                FoldBeta op;
                op.working = made.add("working", DType::bf16, rows, width, Fill::normal, 1, Access::in, 8);
                op.gamma = made.add("gamma", DType::f32, 1, width, Fill::positive, 1);
                op.beta = made.add("beta", DType::f32, 1, width, Fill::normal, 1);
                if (has_bias) op.bias = made.add("bias", DType::f32, 1, rows, Fill::normal, 30);
                op.v = made.result("v", 1, rows);
                made.op = op;
                // Where there is one row, v can be a hundredth of what 20,008 terms add up to elsewhere.
                check(made, rows == 1 ? 1e-3 : kSumTolerance);
            }
}

TEST_CASE("back through the bias of a norm: ragged tiles of rows, chunks of columns, gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t rows : {1, 61, 64, 200})
        for (const std::int64_t width : {8, 256, 264, 3072}) {
            Case made;
            BetaBackward op;
            op.db = made.add("db", DType::f32, 1, rows, Fill::normal, 3);
            op.working = made.add("working", DType::bf16, rows, width, Fill::normal, 1, Access::in, 8);
            op.beta = made.add("beta", DType::f32, 1, width, Fill::normal, 1);
            op.grad = made.add("grad", DType::f32, rows, width, Fill::normal, 1, Access::inout, 4);
            op.dbeta = made.add("dbeta", DType::f32, ceil_div(rows, BetaBackward::kTileRows), width, Fill::nothing, 0,
                                Access::out, 4);
            op.tile = BetaBackward::kTileRows;
            made.op = op;
            check(made, kSumTolerance);
        }
}

TEST_CASE("FoldBeta on the GPU keeps a weight of 0 away from 0", "[gpu]") {
    if (!has_hopper()) return;
    const auto made = [](Buffers& b) {
        FoldBeta op{.working = b.integers(DType::bf16, 9, 16, 3),
                    .gamma = b.random(DType::f32, 1, 16, 1, 1),
                    .beta = b.integers(DType::f32, 1, 16, 3),
                    .bias = {},
                    .v = b.vector(DType::f32, 9)};
        b.set(op.gamma, 0, 5, 0);
        for (std::int64_t row = 0; row < 9; ++row) b.set(op.working, row, 5, static_cast<double>(row) * 0x1p-40);
        return op;
    };
    Buffers expected, got;
    const FoldBeta op = made(expected);
    cpu::run(op, expected.memory());
    run_on_gpu(made(got), got);
    CHECK((got.bits(op.v) == expected.bits(op.v)));  // sums of whole numbers
}

TEST_CASE("FoldBeta and BetaBackward on the GPU refuse rows that are not whole vectors", "[gpu]") {
    if (!has_hopper()) return;
    Buffers buffers;
    const View working = buffers.random(DType::bf16, 16, 12);
    const View vector = buffers.random(DType::f32, 1, 12), rows = buffers.random(DType::f32, 1, 16);
    const FoldBeta fold{
        .working = working, .gamma = vector, .beta = vector, .bias = {}, .v = buffers.vector(DType::f32, 16)};
    CHECK(refusal(fold, buffers) ==
          "FoldBeta: rows of working (12 elements, 12 apart) are not whole vectors of 16 bytes");
    const BetaBackward back{.db = rows,
                            .working = working,
                            .beta = vector,
                            .grad = buffers.random(DType::f32, 16, 12),
                            .dbeta = buffers.matrix(DType::f32, 1, 12),
                            .tile = BetaBackward::kTileRows};
    CHECK(refusal(back, buffers) ==
          "BetaBackward: rows of working (12 elements, 12 apart) are not whole vectors of 16 bytes");
}
