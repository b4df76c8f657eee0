// ReduceParts on the GPU against cpu::run, to the bit.
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("parts are reduced in the order of their rows", "[gpu]") {
    if (!has_hopper()) return;
    for (const auto how : {ReduceParts::How::sum, ReduceParts::How::largest})
        for (const std::int64_t rows : {1, 2, 5, 8})
            for (const std::int64_t columns : {1, 225, 4096, 100004})
                for (const std::int64_t gap : {0, 3, 4}) {
                    Case made;
                    ReduceParts op;
                    op.parts = made.add("parts", DType::f32, rows, columns, Fill::normal, 1, Access::in, gap);
                    op.out = made.add("out", DType::f32, 1, columns, Fill::nothing, 0, Access::out, 0);
                    op.how = how;
                    made.op = op;
                    check(made, 0);
                }
}
