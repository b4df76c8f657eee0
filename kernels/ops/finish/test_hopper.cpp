// The finishing reductions on the GPU against cpu::run.
#include <utility>
#include <vector>

#include "tests/hopper/gpu_copy.h"
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

namespace {

struct ColumnCase {
    std::int64_t tiles, columns;
    bool accumulate;  // and divide by a norm's weight
};

void check_column_sums(const std::vector<ColumnCase>& cases) {
    Case made;
    FinishColumnSums op;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto& [tiles, columns, accumulate] = cases[i];
        const GradientSumNames& names = FinishColumnSums::kNames[i];
        GradientSum sum;
        sum.partials = made.add(names.partials, DType::f32, tiles, columns, Fill::positive, 1);
        if (accumulate) sum.gamma = made.add(names.gamma, DType::f32, 1, columns, Fill::positive, 1);
        const Accumulate<Matrix> to = made.accumulated(names.grad, columns, accumulate);
        sum.grad = {to, to.beta};
        op.add(sum);
    }
    made.op = op;
    check(made, kSumTolerance);
}

}  // namespace

TEST_CASE("sums of tiles", "[gpu]") {
    if (!has_hopper()) return;
    // Fewer tiles than segments, and more, and so many that a cluster shares them where columns are few; columns that
    // do not fill a block.
    for (const std::int64_t tiles : {1, 5, 16, 67, 515, 2100})
        for (const std::int64_t columns : {1, 37, 2056})
            for (const bool accumulate : {false, true}) {
                Case rstd, rows;
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

                check_column_sums({{tiles, columns, accumulate}});
            }
}

TEST_CASE("several sums by columns in one launch", "[gpu]") {
    if (!has_hopper()) return;
    check_column_sums({{67, 37, false}, {512, 768, true}});
    check_column_sums({{512, 768, true}, {48, 768, true}, {512, 768, false}});
    // A cluster shares the tiles of each, of some, and of one; the others are its first block's.
    check_column_sums({{2100, 128, false}, {1024, 128, true}});
    check_column_sums({{2100, 128, true}, {2100, 37, false}, {2100, 2056, true}});
    check_column_sums({{2100, 64, true}, {16, 33, false}});
}

TEST_CASE("a sum by columns has the same bits by itself", "[gpu]") {
    if (!has_hopper()) return;
    Buffers buffers;
    FinishColumnSums together;
    std::vector<FinishColumnSums> alone;
    for (const auto& [tiles, columns] : {std::pair{515, 768}, {2100, 128}, {67, 2056}}) {
        const View partials = buffers.random(DType::f32, tiles, columns, -1, 1, columns + 4);
        together.add({.partials = partials, .grad = {buffers.vector(DType::f32, columns), Beta::overwrite}});
        alone.emplace_back().add(
            {.partials = partials, .grad = {buffers.vector(DType::f32, columns), Beta::overwrite}});
    }
    run_on_gpu(together, buffers);
    for (std::size_t i = 0; i < alone.size(); ++i) {
        run_on_gpu(alone[i], buffers);
        INFO("sum " << i);
        CHECK((buffers.bits(together.sums[i].grad) == buffers.bits(alone[i].sums[0].grad)));
    }
}

// One tile: the sum is the partial itself, and both sides round quotient and addition alike. So the bits are equal.
TEST_CASE("FinishColumnSums on the GPU divides by the norm's weight, kept 2^-40 away from 0", "[gpu]") {
    if (!has_hopper()) return;
    for (const Beta beta : {Beta::overwrite, Beta::accumulate})
        for (const bool weighted : {false, true}) {
            constexpr std::int64_t kColumns = 200;
            Buffers expected, got;
            const auto make = [&](Buffers& buffers) {
                GradientSum sum;
                sum.partials = buffers.random(DType::f32, 1, kColumns);
                const View grad = buffers.random(DType::f32, 1, kColumns);
                sum.grad = {grad, beta};
                const View gamma = buffers.random(DType::f32, 1, kColumns, -1.5, 1.5);
                const double few[] = {0.0, 0x1p-50, -0x1p-50, 0x1p-40, -0x1p-39};
                for (std::int64_t j = 0; j < 5; ++j) buffers.set(gamma, 0, j, few[j]);
                if (weighted) sum.gamma = gamma;
                FinishColumnSums op;
                op.add(sum);
                return op;
            };
            const FinishColumnSums op = make(expected);
            make(got);
            cpu::run(op, expected.memory());
            run_on_gpu(op, got);
            INFO((beta == Beta::accumulate ? "added" : "stored") << (weighted ? ", weighted" : ""));
            CHECK((got.bits(op.sums[0].grad) == expected.bits(op.sums[0].grad)));
        }
}
