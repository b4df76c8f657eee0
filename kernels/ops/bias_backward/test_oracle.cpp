// The oracle of BiasBackward against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges the gradient of a bias", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const bool has_rstd : {false, true}) {
        Operands operands;
        BiasBackward op;
        op.dz = operands.add(DType::bf16, 200, 264, Fill::normal);
        if (has_rstd) op.rstd = operands.statistic(200, Fill::positive);
        op.bias = operands.statistic(264, Fill::normal);
        op.dot = operands.statistic(200, Fill::normal, 30);
        op.sum = operands.add(DType::f32, ceil_div(op.dz.rows, BiasBackward::kTileRows), 264, Fill::nothing);
        op.tile = BiasBackward::kTileRows;
        judge(operands, op, has_rstd ? "BiasBackward, rstd" : "BiasBackward");
    }
}
