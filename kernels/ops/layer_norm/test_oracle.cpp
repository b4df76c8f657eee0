// The oracle of LayerNorm and LayerNormBackward against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges LayerNorm", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands operands;
    LayerNorm op;
    op.x = operands.add(DType::bf16, 200, 264, Fill::normal, 1, 8);
    op.rstd = operands.statistic(200, Fill::positive);
    op.gamma = operands.statistic(264, Fill::normal);
    op.beta = operands.statistic(264, Fill::normal);
    op.n = operands.add(DType::bf16, 200, 264, Fill::nothing, 1, 8);
    judge(operands, op, "LayerNorm");
}

TEST_CASE("the oracle judges the way back through LayerNorm", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const bool has_sums : {true, false}) {
        Operands operands;
        LayerNormBackward op;
        const std::int64_t tiles = ceil_div(std::int64_t{200}, LayerNormBackward::kTileRows);
        op.dn = operands.add(DType::bf16, 200, 264, Fill::normal, 1, 8);
        op.x = operands.add(DType::bf16, 200, 264, Fill::normal, 1, 8);
        op.rstd = operands.statistic(200, Fill::positive);
        op.gamma = operands.statistic(264, Fill::normal);
        op.dx = operands.add(DType::bf16, 200, 264, Fill::nothing, 1, 8);
        op.dgamma = operands.add(DType::f32, tiles, 264, Fill::nothing, 1, 4);
        if (has_sums) {
            op.dbeta = operands.add(DType::f32, tiles, 264, Fill::nothing, 1, 4);
            op.dx_sum = operands.add(DType::f32, tiles, 264, Fill::nothing, 1, 4);
        }
        op.tile = LayerNormBackward::kTileRows;
        judge(operands, op, has_sums ? "LayerNormBackward, all sums" : "LayerNormBackward");
    }
}
