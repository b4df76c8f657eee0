// Zero on the GPU against cpu::run.
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("zero fills rows and leaves gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t gap : {0, 3}) {
        Case made;
        made.op = Zero{made.add("out", DType::f32, 33, 100, Fill::normal, 1, Access::out, gap)};
        check(made, 0);
    }
}
