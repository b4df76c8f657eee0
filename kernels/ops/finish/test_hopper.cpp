// The finishing reductions on the GPU against cpu::run.
#include "tests/hopper/gpu_copy.h"
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("sums of tiles", "[gpu]") {
    if (!has_hopper()) return;
    // Fewer tiles than segments, and more, and so many that a cluster shares them where columns are few; columns that
    // do not fill a block.
    for (const std::int64_t tiles : {1, 5, 16, 67, 515, 2100})
        for (const std::int64_t columns : {1, 37, 2056})
            for (const bool accumulate : {false, true}) {
                Case rstd, rows, grad;
                FinishRstd finish;
                finish.square = rstd.add("square", DType::f32, tiles, columns, Fill::positive, 5, Access::in, 4);
                finish.rstd = rstd.result("rstd", 1, columns);
                finish.width = 128 * tiles;
                finish.eps = 1e-2;
                rstd.op = finish;
                check(rstd, kSumTolerance);

                FinishRowSum row_sum;
                row_sum.partials = rows.add("partials", DType::f32, tiles, columns, Fill::positive, 1);
                row_sum.sum = rows.result("sum", 1, columns);
                rows.op = row_sum;
                check(rows, kSumTolerance);

                FinishColumnSum column_sum;
                column_sum.partials = grad.add("partials", DType::f32, tiles, columns, Fill::positive, 1);
                if (accumulate) column_sum.gamma = grad.add("gamma", DType::f32, 1, columns, Fill::positive, 1);
                const Accumulate<Matrix> to = grad.accumulated("grad", columns, accumulate);
                column_sum.grad = {to, to.beta};
                grad.op = column_sum;
                check(grad, kSumTolerance);
            }
}

// One tile: the sum is the partial itself, and both sides round quotient and addition alike. So the bits are equal.
TEST_CASE("FinishColumnSum on the GPU divides by the norm's weight, kept 2^-40 away from 0", "[gpu]") {
    if (!has_hopper()) return;
    for (const Beta beta : {Beta::overwrite, Beta::accumulate})
        for (const bool weighted : {false, true}) {
            constexpr std::int64_t kColumns = 200;
            Buffers expected, got;
            const auto make = [&](Buffers& buffers) {
                FinishColumnSum op;
                op.partials = buffers.random(DType::f32, 1, kColumns);
                const View grad = buffers.random(DType::f32, 1, kColumns);
                op.grad = {grad, beta};
                const View gamma = buffers.random(DType::f32, 1, kColumns, -1.5, 1.5);
                const double few[] = {0.0, 0x1p-50, -0x1p-50, 0x1p-40, -0x1p-39};
                for (std::int64_t j = 0; j < 5; ++j) buffers.set(gamma, 0, j, few[j]);
                if (weighted) op.gamma = gamma;
                return op;
            };
            const FinishColumnSum op = make(expected);
            make(got);
            cpu::run(op, expected.memory());
            run_on_gpu(op, got);
            INFO((beta == Beta::accumulate ? "added" : "stored") << (weighted ? ", weighted" : ""));
            CHECK((got.bits(op.grad) == expected.bits(op.grad)));
        }
}
