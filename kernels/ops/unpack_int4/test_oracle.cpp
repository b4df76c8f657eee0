// The oracle of UnpackInt4 against right and wrong results.
#include "kernels/math/int4.h"
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges UnpackInt4", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const bool folds : {true, false}) {
        Operands operands;
        UnpackInt4 op;
        op.units =
            operands.add(DType::i32, 304 / kInt4Rows, 384 / kInt4Group * kInt4UnitWords, Fill::int4, 1, kInt4UnitWords);
        if (folds) op.gamma = operands.statistic(384, Fill::normal);
        op.working = operands.add(DType::bf16, 304, 384, Fill::nothing, 1, 16);
        judge(operands, op, folds ? "UnpackInt4 folded" : "UnpackInt4");
    }
}
