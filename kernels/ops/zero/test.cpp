// Zero: the view becomes 0, and what lies next to it stays untouched.
#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("Zero writes the view and nothing else") {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::u8}) {
        Buffers buffers;
        Zero op;
        op.out = buffers.matrix(dtype, 5, 7, 9);
        cpu::run(op, buffers.memory());
        REQUIRE((buffers.values(op.out) == std::vector<double>(35, 0.0)));
        REQUIRE(buffers.gaps_untouched(op.out));
    }
    Buffers buffers;  // more than one block of 1 MiB
    Zero op;
    op.out = buffers.vector(DType::f32, (3 << 18) + 5);
    cpu::run(op, buffers.memory());
    REQUIRE((buffers.values(op.out) == std::vector<double>((3 << 18) + 5, 0.0)));
}
