// The oracle of FoldBeta and BetaBackward against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges the bias of a norm in a projection's bias", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const bool has_bias : {false, true}) {
        Operands operands;
        FoldBeta op;
        op.working = operands.add(DType::bf16, 200, 264, Fill::normal, 1, 8);
        op.gamma = operands.statistic(264, Fill::positive);
        op.beta = operands.statistic(264, Fill::normal);
        if (has_bias) op.bias = operands.statistic(200, Fill::normal, 30);
        op.v = operands.result(200);
        judge(operands, op, has_bias ? "FoldBeta, bias" : "FoldBeta");
    }
}

TEST_CASE("the oracle judges the way back through the bias of a norm", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands operands;
    BetaBackward op;
    op.db = operands.statistic(200, Fill::normal);
    op.working = operands.add(DType::bf16, 200, 264, Fill::normal, 1, 8);
    op.beta = operands.statistic(264, Fill::normal);
    op.grad = operands.add(DType::f32, 200, 264, Fill::normal, 1, 4);
    op.dbeta = operands.add(DType::f32, ceil_div(op.working.rows, BetaBackward::kTileRows), 264, Fill::nothing, 1, 4);
    op.tile = BetaBackward::kTileRows;
    judge(operands, op, "BetaBackward");
}
