// Every GEMM program of the Hopper executor against cpu::run on the same bf16 operands, on a Hopper GPU.
//
// Tolerances. Stored tiles: 4e-3 relative RMS (one bf16 rounding is 1.1e-3 to 2.2e-3 RMS, and results at a rounding
// boundary may fall either way). fp32 results: max(1e-5, K 2^-27) of their largest, as both sides sum K products in
// fp32 in different order.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "tests/catch.h"
#include "tools/bench/device_buffers.h"
#include "tools/bench/gemm_cases.h"

using namespace coda;
using bench::CaseOptions;
using bench::GemmCase;
using bench::Shape;

namespace {

bool has_hopper() {
    int devices = 0;
    cudaDeviceProp properties{};
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
        cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
        WARN("skipped: no Hopper GPU");
        return false;
    }
    return true;
}

using Bytes = std::vector<std::vector<std::byte>>;

Bytes download(const GemmCase& made, const bench::DeviceBuffers& device) {
    Bytes host;
    for (const bench::Buffer& buffer : made.buffers) {
        host.emplace_back(static_cast<std::size_t>(bench::span_bytes(buffer.view)));
        CUDA_CHECK(cudaMemcpy(host.back().data(), device.memory().address(buffer.view), host.back().size(),
                              cudaMemcpyDeviceToHost));
    }
    return host;
}

Memory memory_of(Bytes& bytes) {
    std::vector<std::byte*> bases;
    for (auto& buffer : bytes) bases.push_back(buffer.data());
    return Memory(bases);
}

double element(const std::vector<std::byte>& bytes, const View& view, std::int64_t row, std::int64_t column) {
    const std::byte* at = bytes.data() + (row * view.ld + column) * size_of(view.dtype);
    if (view.dtype == DType::bf16) {
        Bf16 value;
        std::memcpy(&value, at, sizeof value);
        return static_cast<float>(value);
    }
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
}

struct Difference {
    double rms = 0;      // relative to the expected values' RMS
    double largest = 0;  // relative to the largest expected magnitude
};

Difference difference(const std::vector<std::byte>& got, const std::vector<std::byte>& expected, const View& view) {
    double squares = 0, error = 0, magnitude = 0, largest = 0;
    for (std::int64_t row = 0; row < view.rows; ++row)
        for (std::int64_t column = 0; column < view.cols; ++column) {
            const double want = element(expected, view, row, column);
            double have = element(got, view, row, column);
            if (std::isnan(want) && std::isnan(have)) continue;  // left unwritten by both
            if (std::isnan(have) || std::isnan(want)) return {1e30, 1e30};
            squares += want * want;
            error += (have - want) * (have - want);
            magnitude = std::max(magnitude, std::fabs(want));
            largest = std::max(largest, std::fabs(have - want));
        }
    if (squares == 0) return {std::sqrt(error), largest};
    return {std::sqrt(error / squares), largest / magnitude};
}

void check(const Shape& shape, const CaseOptions& options) {
    const GemmCase made = bench::make_case(shape, options);
    const bench::DeviceBuffers device(made.buffers, 17);
    Bytes expected = download(made, device);
    cpu::run(made.op, memory_of(expected));

    const hopper::Launch launch = hopper::prepare(made.op, device.memory());
    launch(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made, device);
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
            Bytes bytes = download(made, device);
            if (run == 0) {
                first = std::move(bytes);
            } else {
                INFO(program);
                CHECK(bytes == first);
            }
        }
    }
}
