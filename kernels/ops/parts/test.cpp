// ReduceParts against sums in the order of the rows, to the bit.
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

ReduceParts reduce_parts(Buffers& buffers, DType dtype, std::int64_t rows, std::int64_t columns, ReduceParts::How how) {
    ReduceParts op;
    op.parts = buffers.random(dtype, rows, columns, -1, 1, columns + 3);
    op.out = buffers.vector(dtype, columns);
    op.how = how;
    return op;
}

}  // namespace

TEST_CASE("ReduceParts adds the parts in the order of their rows, or takes the largest") {
    for (const DType dtype : {DType::f64, DType::f32})
        for (const std::int64_t rows : {1, 2, 3, 8})
            for (const auto how : {ReduceParts::How::sum, ReduceParts::How::largest}) {
                Buffers buffers;
                const std::int64_t columns = 40001;  // more than two blocks
                const ReduceParts op = reduce_parts(buffers, dtype, rows, columns, how);
                cpu::run(op, buffers.memory());
                for (std::int64_t i = 0; i < columns; ++i) {
                    double value = buffers.get(op.parts, 0, i);
                    for (std::int64_t row = 1; row < rows; ++row) {
                        const double part = buffers.get(op.parts, row, i);
                        value = how == ReduceParts::How::sum ? value + part : std::max(value, part);
                        if (dtype == DType::f32) value = static_cast<float>(value);
                    }
                    REQUIRE(buffers.get(op.out, 0, i) == value);
                }
            }
}

TEST_CASE("ReduceParts keeps a NaN of any part") {
    for (const auto how : {ReduceParts::How::sum, ReduceParts::How::largest})
        for (std::int64_t row = 0; row < 3; ++row) {
            Buffers buffers;
            const ReduceParts op = reduce_parts(buffers, DType::f32, 3, 5, how);
            buffers.set(op.parts, row, 2, std::numeric_limits<double>::quiet_NaN());
            cpu::run(op, buffers.memory());
            for (std::int64_t i = 0; i < 5; ++i) CHECK(std::isnan(buffers.get(op.out, 0, i)) == (i == 2));
        }
}

TEST_CASE("ReduceParts gives the same bits for any number of threads") {
    require_same_bits_for_any_thread_count(
        [&](Buffers& b) { return reduce_parts(b, DType::f32, 3, 100000, ReduceParts::How::sum); });
}

TEST_CASE("ReduceParts names an operand of the wrong shape or type") {
    Buffers buffers;
    ReduceParts op = reduce_parts(buffers, DType::f32, 2, 8, ReduceParts::How::sum);
    op.out.cols = 7;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "ReduceParts: operand out is (1, 7), expected (1, 8)");
    op.parts.dtype = DType::bf16;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "ReduceParts: operand parts is bf16, expected f64 or f32");
}
