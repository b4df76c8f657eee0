// Statistics of rows: exact sums of numbers that double adds without rounding.
#include "kernels/cpu/row_stats.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the statistics of a row follow from its elements, gaps left out") {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
        for (const std::int64_t gap : {0, 3}) {
            INFO(name_of(dtype) << ", gap " << gap);
            constexpr std::int64_t kRows = 5, kColumns = 7;
            Buffers buffers;
            const View view =
                buffers.random(dtype, kRows, kColumns, 100, 200, kColumns + gap);  // gaps hold large numbers
            for (std::int64_t r = 0; r < kRows; ++r) {
                for (std::int64_t c = 0; c < kColumns; ++c) buffers.set(view, r, c, static_cast<float>((r - 2) * c));
            }
            buffers.set(view, 1, 3, -0.0F);
            const std::vector<RowStats> stats = cpu::row_stats(view, buffers.memory());
            REQUIRE(stats.size() == kRows);
            for (std::int64_t r = 0; r < kRows; ++r) {
                INFO("row " << r);
                const std::int64_t step = std::abs(r - 2);
                const RowStats& row = stats[static_cast<std::size_t>(r)];
                // 0² + ... + 6² = 91, of which row 1 lost 3².
                CHECK(row.square == static_cast<double>(step * step * 91 - (r == 1 ? 9 : 0)));
                CHECK(row.amax == static_cast<double>(step * 6));
                CHECK(row.zeros == (r == 2 ? 7 : r == 1 ? 2 : 1));
            }
        }
    }
}

TEST_CASE("a row with NaN has no largest magnitude, whatever follows it, and one with infinity has that") {
    Buffers buffers;
    const View view = buffers.random(DType::bf16, 3, 8, -1, 1, 8);
    buffers.set(view, 0, 2, std::numeric_limits<float>::quiet_NaN());
    buffers.set(view, 1, 2, -std::numeric_limits<float>::infinity());
    const std::vector<RowStats> stats = cpu::row_stats(view, buffers.memory());
    CHECK(std::isnan(stats[0].amax));
    CHECK(stats[1].amax == std::numeric_limits<double>::infinity());
    CHECK(stats[2].amax <= 1);
    CHECK_THROWS_WITH(cpu::row_stats(buffers.vector(DType::i32, 4), buffers.memory()), Catch::Contains("not i32"));
}
