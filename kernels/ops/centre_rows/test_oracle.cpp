// The oracle of CentreRows against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges CentreRows", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands operands;
    CentreRows op;
    op.dx = operands.add(DType::bf16, 300, 264, Fill::normal);
    judge(operands, op, "CentreRows");
}
