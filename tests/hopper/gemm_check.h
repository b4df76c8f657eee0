// What the tests of the GEMM programs share: running one case against cpu::run on the same bf16 operands.
//
// Tolerances. Stored tiles: 4e-3 relative RMS (one bf16 rounding is 1.1e-3 to 2.2e-3 RMS, and results at a rounding
// boundary may fall either way). fp32 results: max(1e-5, K 2^-27) of the largest, as both sides sum K terms in fp32 in
// different order. Each exponential is measured against itself. Logits below 2^3 are 2^-20 apart, so one in 2^10 is
// rounded the other way, by at most 2^-7 of itself: 2.4e-4 RMS. The same holds for the sums of a tile in which one
// exponential dominates.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cases/op_cases.h"
#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"

namespace coda::test {

using cases::CaseOptions;
using cases::GemmCase;
using cases::Program;
using cases::Shape;

/// For exponentials and their sums: differences relative to each element's own size. An exponential below 2^-126 may be
/// 0 on one side, and so may a tile's sum of 128 of them, times distances of up to 2^6.
inline Difference exponential_difference(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                                         const View& view) {
    return difference_of_each(got, expected, view,
                              [](std::int64_t, std::int64_t, double want) { return std::max(want, 0x1p-118); });
}
inline Difference pair_difference(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                                  const View& view) {
    return difference_of_each(got, expected, view, [&](std::int64_t row, std::int64_t column, double want) {
        const double sum = element(expected, view, row, column / 2 * 2);
        return std::max(column % 2 == 0 ? sum : sum + std::fabs(want), 0x1p-104);
    });
}

inline void check_case(const GemmCase& made, const CaseOptions& options, const hopper::Request& choice = {}) {
    const Shape& shape = made.shape;
    const cases::DeviceBuffers device(made.buffers, 17);
    Bytes expected = download(made.buffers, device.memory());
    cpu::run(made.op, memory_of(expected));

    const hopper::Launch launch = hopper::prepare(made.op, device.memory(), choice);
    launch(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    for (std::size_t i = 0; i < made.buffers.size(); ++i) {
        const cases::Buffer& buffer = made.buffers[i];
        if (buffer.access == Access::in) {
            CHECK(got[i] == expected[i]);
            continue;
        }
        if (buffer.view.dtype == DType::u8) continue;  // scratch
        const std::string name = buffer.name;
        const Difference found = name == "exponentials" ? exponential_difference(got[i], expected[i], buffer.view)
                                 : name == "sums"       ? pair_difference(got[i], expected[i], buffer.view)
                                                        : difference(got[i], expected[i], buffer.view);
        INFO(shape.program << ", tile " << choice.candidate << ", M " << shape.m << " N " << shape.n << " K " << shape.k
                           << " " << buffer.name << ": relative RMS " << found.rms << ", largest " << found.largest);
        if (options.integers) {
            CHECK(found.largest == 0);
        } else if (name == "exponentials" || name == "sums") {
            CHECK(found.rms <= 1e-3);
            CHECK(found.largest <= 8e-3);
        } else if (buffer.view.dtype == DType::bf16 || name == "delta") {
            // delta sums the rounded output, so it inherits the ties of that rounding.
            CHECK(found.rms <= 4e-3);
        } else {
            CHECK(found.largest <= std::max(1e-5, static_cast<double>(shape.k) * 0x1p-27));
        }
    }
    // What no view covers stays as it was: gaps between rows belong to no input.
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

inline void check(const Shape& shape, const CaseOptions& options, const hopper::Request& choice = {}) {
    check_case(cases::make_case(shape, options), options, choice);
}

}  // namespace coda::test
