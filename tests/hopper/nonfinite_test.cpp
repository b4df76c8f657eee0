// The search for non-finite elements, on the GPU.
#include <limits>

#include "kernels/hopper/pointwise/nonfinite.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("the first non-finite element is found, gaps left out", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType dtype : {DType::f8e4m3, DType::f8e5m2, DType::bf16, DType::f32, DType::f64})
        for (const std::int64_t gap : {0, 5}) {
            const float infinity = is_f8(dtype) ? kNan : kInfinity;  // to which FP8 does not round
            constexpr std::int64_t kRows = 300, kColumns = 9001;     // more elements than threads
            Buffers buffers;
            const View view = buffers.random(dtype, kRows, kColumns, -1, 1, kColumns + gap);
            const View result = buffers.vector(DType::f64, 1);  // eight bytes
            const auto find = [&] {
                GpuCopy copy(buffers, {view, result});
                auto* index = reinterpret_cast<std::int64_t*>(copy.memory().address(result));
                hopper::enqueue_first_nonfinite(view, copy.memory(), index, nullptr);
                copy.download();
                std::int64_t found = 0;
                std::memcpy(&found, buffers.memory().address(result), sizeof found);
                return found;
            };
            INFO(name_of(dtype) << ", gap " << gap);
            CHECK(find() == -1);
            buffers.set(view, kRows - 1, kColumns - 1, kNan);
            CHECK(find() == kRows * kColumns - 1);
            buffers.set(view, 200, 17, infinity);
            buffers.set(view, 250, 0, kNan);
            CHECK(find() == 200 * kColumns + 17);
            buffers.set(view, 0, 0, -infinity);
            CHECK(find() == 0);
        }
    Buffers buffers;
    CHECK_THROWS_WITH(
        hopper::enqueue_first_nonfinite(buffers.vector(DType::i32, 4), buffers.memory(), nullptr, nullptr),
        Catch::Contains("got a view of i32"));
}
