// The oracle of QuantiseF8 against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges QuantiseF8", "[gpu][oracle][f8]") {
    if (!has_hopper()) return;
    for (const bool paired : {true, false}) {
        Operands operands;
        const DType format = paired ? DType::f8e5m2 : DType::f8e4m3;
        QuantiseF8 op;
        op.x = operands.add(DType::bf16, 304, 400, Fill::normal, 3, 16);
        if (paired) op.rstd = operands.statistic(304, Fill::positive);
        op.codes.scale = operands.scalar(32);
        op.codes.rows = operands.add(format, 304, 400, Fill::nothing, 1, 16);
        op.codes.columns = operands.add(format, 400, 304, Fill::nothing, 1, 32);
        op.codes.columns.order = paired ? ColumnOrder::paired : ColumnOrder::natural;
        op.codes.amax = operands.scalar(0.5);
        judge(operands, op, paired ? "QuantiseF8 paired" : "QuantiseF8 natural");

        QuantiseF8 other = op;
        other.codes.columns.order = paired ? ColumnOrder::natural : ColumnOrder::paired;
        CHECK((named_afresh(operands, op, other) == std::set<std::string>{"columns"}));
    }
}
