// The oracle of ReduceParts against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges the reduction of parts", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const auto how : {ReduceParts::How::sum, ReduceParts::How::largest}) {
        Operands operands;
        ReduceParts op;
        op.parts = operands.add(DType::f32, 3, 5000, Fill::normal);
        op.out = operands.result(5000);
        op.how = how;
        judge(operands, op, how == ReduceParts::How::sum ? "ReduceParts" : "ReduceParts, largest");
    }
}
