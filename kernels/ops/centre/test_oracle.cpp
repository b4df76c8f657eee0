// The oracle of CentreColumns against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges columns without their means", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const DType type : {DType::bf16, DType::f32})
        for (const bool with_bias : {false, true})
            for (const bool in_place : {false, true}) {
                Operands operands;
                CentreColumns op;
                op.matrix = operands.add(type, 300, 264, Fill::normal, 1, 8);
                op.out = in_place ? View(op.matrix) : operands.add(type, 300, 264, Fill::nothing, 1, 8);
                if (with_bias) {
                    op.bias = operands.statistic(300, Fill::normal);
                    op.bias_out = in_place ? View(op.bias) : operands.result(300);
                }
                judge(operands, op,
                      text("CentreColumns ", name_of(type), with_bias ? " with a bias" : "",
                           in_place ? " in place" : ""));
            }
}

TEST_CASE("the oracle sees means that were not taken out", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands operands;
    CentreColumns op;
    op.matrix = operands.add(DType::f32, 300, 264, Fill::positive);
    op.out = operands.add(DType::f32, 300, 264, Fill::nothing);
    const auto add_a_thousandth = [&](const Memory& memory) {
        alter(op.out, memory, [](std::int64_t, std::int64_t, double value) { return value + 1e-3; });
    };
    CHECK((named_afresh(operands, op, op, add_a_thousandth) == std::set<std::string>{"out"}));
}
