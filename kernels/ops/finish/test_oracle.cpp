// The oracle of the finishing reductions against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges the finishing reductions", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands rstd, rows;
    FinishRstd finish;
    finish.square = rstd.add(DType::f32, 16, 1000, Fill::positive, 5, 4);
    finish.rstd = rstd.result(1000);
    finish.width = 2048;
    finish.eps = 1e-5;
    judge(rstd, finish, "FinishRstd");

    FinishRowSum sum;
    sum.partials = rows.add(DType::f32, 48, 1000, Fill::normal);
    sum.sum = rows.result(1000);
    judge(rows, sum, "FinishRowSum");

    for (const bool accumulate : {false, true}) {
        Operands columns, total;
        FinishColumnSums column_sums;
        for (const std::int64_t tiles : {67, 512, 5}) {
            GradientSum each;
            each.partials = columns.add(DType::f32, tiles, 2056, Fill::normal);
            if (accumulate) each.gamma = columns.statistic(2056, Fill::positive);
            each.grad = columns.accumulated(2056, accumulate);
            column_sums.add(each);
        }
        judge(columns, column_sums, "FinishColumnSums");

        ReduceLoss reduce;
        reduce.loss = total.statistic(5000, Fill::positive, 9);
        reduce.alpha = total.scalar(1.0 / 5000);
        const Accumulate<Vector> to = total.accumulated(1, accumulate);
        reduce.total = {to, to.beta};
        judge(total, reduce, "ReduceLoss");
    }
}
