// Every GEMM program of the Hopper executor against cpu::run, on a Hopper GPU. gemm_check.h has the tolerances.
#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("GEMMs of whole numbers are exact", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : {"Linear", "Linear in_out", "Linear f32", "WeightGradient"})
        for (const bool accumulate : {false, true})
            for (const Shape& shape :
                 {Shape{program, 256, 256, 64}, Shape{program, 128, 256, 16}, Shape{program, 512, 512, 512},
                  Shape{program, 8, 136, 72}, Shape{program, 200, 520, 24}, Shape{program, 1000, 264, 1000}}) {
                // bf16 results are exact only below 256: K is 24, and each term is at most 4.
                const bool f32 = std::string(program) == "Linear f32" || std::string(program) == "WeightGradient";
                if (!f32 && shape.k > 24) continue;
                check(shape, {.integers = true, .accumulate = accumulate, .optionals = accumulate});
            }
}

TEST_CASE("programs agree with the CPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const auto& [program, make, columns, gradient] : cases::all_programs()) {
        const bool heads = columns == 128;
        check({program, 256, 512, 192}, {});
        check({program, 304, heads ? 384 : 528, 200}, {.accumulate = true, .optionals = true});
        check({program, 8, heads ? 128 : 144, 72}, {.gap = 8});
        check({program, gradient ? 1032 : 1030, 768, 520}, {.head_dim = 128, .vocab = 757});
    }
}

TEST_CASE("one row, as in sampling", "[gpu]") {
    if (!has_hopper()) return;
    for (const Program& program : cases::all_programs())
        if (!program.gradient) check({program.name, 1, 256, 136}, {});
}

TEST_CASE("many tiles per block and rounds of every ring", "[gpu]") {
    if (!has_hopper()) return;
    for (const Program& program : cases::all_programs()) check({program.name, 6400, 2816, 320}, {.accumulate = true});
}

TEST_CASE("two runs give the same bits", "[gpu]") {
    if (!has_hopper()) return;
    std::vector<Shape> shapes{{"WeightGradient", 768, 768, 8192}};  // with K cut into parts
    for (const Program& program : cases::all_programs()) shapes.push_back({program.name, 1536, 1536, 512});
    for (const Shape& shape : shapes) {
        const GemmCase made = cases::make_case(shape);
        Bytes first;
        for (int run = 0; run < 2; ++run) {
            const cases::DeviceBuffers device(made.buffers, 5);
            hopper::prepare(made.op, device.memory())(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            Bytes bytes = download(made.buffers, device.memory());
            if (run == 0) {
                first = std::move(bytes);
            } else {
                INFO(shape.program << " M " << shape.m << " N " << shape.n << " K " << shape.k);
                CHECK(bytes == first);
            }
        }
    }
}
