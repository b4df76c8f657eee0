// LinearRmsBackward on the GPU against cpu::run: scales of rows. gemm_check.h has the tolerances.
#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

// The head stores rows of its gradient divided by their scale, which lies anywhere from 2^-58 to 2^110. A scale of 0
// keeps out what an ignored row holds.
TEST_CASE("scales of the rows of a gradient", "[gpu]") {
    if (!has_hopper()) return;
    for (const auto& [size, scale] : {std::pair{0x1p100, 0x1p-100}, {0x1p-58, 0x1p58}, {0x1p100, 0.0}}) {
        const CaseOptions options{.accumulate = true, .optionals = true};
        GemmCase made = cases::make_case({"LinearRmsBackward", 328, 528, 1000}, options);
        for (cases::Buffer& buffer : made.buffers) {
            if (std::string(buffer.name) == "a") buffer.scale = size;
            if (std::string(buffer.name) == "scale") buffer.scale = scale;
        }
        check_case(made, options);
    }
}
