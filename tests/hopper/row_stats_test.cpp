// Statistics of rows on the GPU compared with the CPU's.
#include <cmath>
#include <limits>

#include "kernels/cpu/row_stats.h"
#include "kernels/hopper/pointwise/row_stats.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the statistics of rows are the CPU's: exact but for the order of a sum", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
        for (const std::int64_t columns : {1, 255, 256, 4099}) {
            for (const std::int64_t gap : {0, 5}) {
                INFO(name_of(dtype) << ", " << columns << " columns, gap " << gap);
                constexpr std::int64_t kRows = 37;
                Buffers buffers;
                const View view = buffers.random(dtype, kRows, columns, -3, 2, columns + gap);
                for (std::int64_t r = 0; r < kRows; r += 2)
                    buffers.set(view, r, columns - 1, r % 4 == 0 ? 0.0F : -0.0F);
                buffers.set(view, 3, columns / 2, std::numeric_limits<float>::quiet_NaN());
                buffers.set(view, 5, columns / 2, -std::numeric_limits<float>::infinity());
                const View result = buffers.vector(DType::f64, kRows * 3);
                static_assert(sizeof(RowStats) == 3 * sizeof(double));
                GpuCopy copy(buffers, {view, result});
                hopper::enqueue_row_stats(view, copy.memory(),
                                          reinterpret_cast<RowStats*>(copy.memory().address(result)), nullptr);
                copy.download();
                std::vector<RowStats> found(kRows);
                std::memcpy(found.data(), buffers.memory().address(result), sizeof(RowStats) * kRows);
                const std::vector<RowStats> expected = cpu::row_stats(view, buffers.memory());
                for (std::size_t r = 0; r < kRows; ++r) {
                    INFO("row " << r);
                    CHECK(found[r].zeros == expected[r].zeros);
                    if (r == 3) {
                        CHECK(std::isnan(found[r].amax));
                        continue;
                    }
                    CHECK(found[r].amax == expected[r].amax);
                    // 4099 additions of numbers of one sign, each rounded by 2^-53.
                    if (r != 5) CHECK(found[r].square == Approx(expected[r].square).epsilon(1e-12));
                }
            }
        }
    }
    Buffers buffers;
    CHECK_THROWS_WITH(hopper::enqueue_row_stats(buffers.vector(DType::i32, 4), buffers.memory(), nullptr, nullptr),
                      Catch::Contains("got a view of i32"));
}
