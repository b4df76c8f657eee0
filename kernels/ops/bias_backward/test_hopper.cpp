// BiasBackward on the GPU against cpu::run.
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

/// Of dot: where a case has one row, it can be a hundredth of the 20,008 terms that cancel in it.
constexpr double kDotTolerance = 1e-4;

TEST_CASE("the gradient of a bias: ragged tiles of rows, chunks of columns, gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t rows : {1, 63, 64, 200})
        for (const std::int64_t columns : {8, 256, 264, 3072, 20008})
            for (const bool has_rstd : {false, true}) {
                Case made;
                BiasBackward op;
                op.dz = made.add("dz", DType::bf16, rows, columns, Fill::normal, 1, Access::in, 8);
                if (has_rstd) op.rstd = made.add("rstd", DType::f32, 1, rows, Fill::positive, 1);
                op.bias = made.add("bias", DType::f32, 1, columns, Fill::normal, 1);
                op.dot = made.add("dot", DType::f32, 1, rows, Fill::normal, 100, Access::inout);
                op.sum = made.add("sum", DType::f32, ceil_div(rows, BiasBackward::kTileRows), columns, Fill::nothing, 0,
                                  Access::out, 4);
                op.tile = BiasBackward::kTileRows;
                made.op = op;
                check(made, kSumTolerance, kDotTolerance);
            }
}
