// Every GEMM program of the Hopper executor against cpu::run on the same bf16 operands, on a Hopper GPU.
//
// Tolerances. Stored tiles: 4e-3 relative RMS (one bf16 rounding is 1.1e-3 to 2.2e-3 RMS, and results at a rounding
// boundary may fall either way). fp32 results: max(1e-5, K 2^-27) of their largest, as both sides sum K products in
// fp32 in different order.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"
#include "tools/bench/gemm_cases.h"

using namespace coda;
using namespace coda::test;
using bench::CaseOptions;
using bench::GemmCase;
using bench::Shape;

namespace {

void check(const Shape& shape, const CaseOptions& options) {
    const GemmCase made = bench::make_case(shape, options);
    const bench::DeviceBuffers device(made.buffers, 17);
    Bytes expected = download(made.buffers, device.memory());
    cpu::run(made.op, memory_of(expected));

    const hopper::Launch launch = hopper::prepare(made.op, device.memory());
    launch(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    for (std::size_t i = 0; i < made.buffers.size(); ++i) {
        const bench::Buffer& buffer = made.buffers[i];
        if (buffer.access == Access::in) {
            CHECK(got[i] == expected[i]);
            continue;
        }
        const Difference found = difference(got[i], expected[i], buffer.view);
        INFO(shape.program << " M " << shape.m << " N " << shape.n << " K " << shape.k << " " << buffer.name
                           << ": relative RMS " << found.rms << ", largest " << found.largest);
        if (options.integers) {
            CHECK(found.largest == 0);
        } else if (buffer.view.dtype == DType::bf16 || std::string(buffer.name) == "delta") {
            // delta sums the rounded output, so it inherits that rounding's ties.
            CHECK(found.rms <= 4e-3);
        } else {
            CHECK(found.largest <= std::max(1e-5, static_cast<double>(shape.k) * 0x1p-27));
        }
    }
    // What no view covers stays as it was: gaps between rows are inputs of nobody.
    for (std::size_t i = 0; i < made.buffers.size(); ++i) {
        const View& view = made.buffers[i].view;
        for (std::int64_t row = 0; row + 1 < view.rows; ++row) {
            const auto begin = (row * view.ld + view.cols) * size_of(view.dtype);
            const auto size = static_cast<std::size_t>((view.ld - view.cols) * size_of(view.dtype));
            if (std::memcmp(got[i].data() + begin, expected[i].data() + begin, size) != 0) {
                FAIL_CHECK(shape.program << ": gap after row " << row << " of " << made.buffers[i].name << " changed");
                break;
            }
        }
    }
}

const char* const kPrograms[] = {"Linear",
                                 "LinearDgrad",
                                 "LinearF32",
                                 "WeightGradient",
                                 "LinearRstd",
                                 "LinearRope",
                                 "LinearRstdRope",
                                 "LinearSwiglu",
                                 "LinearRstdSwiglu",
                                 "LinearResidualRms",
                                 "LinearCrossEntropy",
                                 "LinearRstdCrossEntropy",
                                 "LinearRmsBackward",
                                 "LinearSwigluBackward",
                                 "LinearHeadDot"};

bool has_heads(const std::string& program) {
    return program == "LinearRope" || program == "LinearRstdRope" || program == "LinearHeadDot";
}

}  // namespace

TEST_CASE("products of whole numbers are exact", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : {"Linear", "LinearDgrad", "LinearF32", "WeightGradient"})
        for (const bool accumulate : {false, true})
            for (const Shape& shape :
                 {Shape{program, 256, 256, 64}, Shape{program, 128, 256, 16}, Shape{program, 512, 512, 512},
                  Shape{program, 8, 136, 72}, Shape{program, 200, 520, 24}, Shape{program, 1000, 264, 1000}}) {
                // bf16 results stay exact only below 256; K of 24 products of at most 4.
                const bool f32 = std::string(program) == "LinearF32" || std::string(program) == "WeightGradient";
                if (!f32 && shape.k > 24) continue;
                check(shape, {.integers = true, .accumulate = accumulate, .alpha = accumulate});
            }
}

TEST_CASE("programs agree with the CPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kPrograms) {
        const std::int64_t columns = has_heads(program) ? 384 : 528;
        check({program, 256, 512, 192}, {});
        check({program, 304, columns, 200}, {.accumulate = true, .alpha = true});
        check({program, 8, has_heads(program) ? 128 : 144, 72}, {.gap = 8});
        check({program, std::string(program) == "WeightGradient" ? 1032 : 1030, 768, 520},
              {.head_dim = 128, .vocab = 757});
    }
}

TEST_CASE("many tiles a block and rounds of every ring", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kPrograms) check({program, 6400, 2816, 320}, {.accumulate = true});
}

TEST_CASE("two runs give the same bits", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kPrograms) {
        const GemmCase made = bench::make_case({program, 1536, 1536, 512});
        Bytes first;
        for (int run = 0; run < 2; ++run) {
            const bench::DeviceBuffers device(made.buffers, 5);
            hopper::prepare(made.op, device.memory())(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            Bytes bytes = download(made.buffers, device.memory());
            if (run == 0) {
                first = std::move(bytes);
            } else {
                INFO(program);
                CHECK(bytes == first);
            }
        }
    }
}
