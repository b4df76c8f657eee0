// The oracle of RoundWeights against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges RoundWeights", "[gpu][oracle][f8]") {
    if (!has_hopper()) return;
    for (const bool folds : {true, false}) {
        Operands operands;
        RoundWeights op;
        op.master = operands.add(DType::f32, 300, 400, Fill::normal, 3, 16);
        if (folds) op.gamma = operands.statistic(400, Fill::normal);
        op.working = operands.add(DType::bf16, 300, 400, Fill::nothing, 1, 16);
        judge(operands, op, folds ? "RoundWeights folded" : "RoundWeights");
    }
}
