// What the tests of the pointwise ops and Finish operations share: running one case against cpu::run on the same
// operands.
//
// Tolerances. fp32 sums of n terms, in different order on both sides: n 2^-24 of the largest result for terms of one
// sign, and of the sum of magnitudes otherwise. 1e-5 covers both at these sizes, and the dot products of TargetLogit. A
// loss near 10 is good to a few of its ulp: 1e-6. Gradients through RoPE are stored in bf16: 4e-3 relative RMS. Where
// the sums are not exact, their last bits make FinishCrossEntropy round a stored bf16 value the other way in one of
// some thousand rows, by 2^-7 of itself. Its dot is of the stored values, so it is off by that times the target's
// logit, which is up to 8: 6e-2.
#pragma once

#include <functional>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"

namespace coda::test {

using cases::Buffer;
using cases::Fill;

inline constexpr double kSumTolerance = 1e-5, kRoundedSumTolerance = 6e-2, kStorageTolerance = 4e-3,
                        kStepTolerance = 0x1p-7, kLogTolerance = 1e-6;

struct Case {
    Op op;
    std::vector<Buffer> buffers;

    View add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale,
             Access access = Access::in, std::int64_t gap = 0) {
        const View view{static_cast<BufferId>(buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
        buffers.push_back({name, view, fill, scale, access});
        return view;
    }
    /// Poisoned: NaN until the op writes it.
    View result(const char* name, std::int64_t rows, std::int64_t columns) {
        return add(name, DType::f32, rows, columns, Fill::nothing, 0, Access::out);
    }
    Accumulate<Matrix> accumulated(const char* name, std::int64_t columns, bool accumulate) {
        if (!accumulate) return {result(name, 1, columns), Beta::overwrite};
        return {add(name, DType::f32, 1, columns, Fill::normal, 3, Access::inout), Beta::accumulate};
    }
};

/// Runs the op on both sides. Inputs and gaps must stay unchanged, results be within the tolerance (`dot` has its own,
/// unless that is negative), and a second run must give the same bits.
inline void check(const Case& made, double tolerance, double dot_tolerance = -1) {
    Bytes first;
    for (int run = 0; run < 2; ++run) {
        const cases::DeviceBuffers device(made.buffers, 17);
        Bytes expected = download(made.buffers, device.memory());
        cpu::run(made.op, memory_of(expected));
        hopper::prepare(made.op, device.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const Bytes got = download(made.buffers, device.memory());
        if (run == 1) {
            INFO(name_of(made.op) << ": a second run");
            CHECK(got == first);
            return;
        }
        for (std::size_t i = 0; i < made.buffers.size(); ++i) {
            const Buffer& buffer = made.buffers[i];
            const bool exponentials = std::string(buffer.name) == "exponentials";
            const Difference found =
                exponentials
                    ? difference_of_each(got[i], expected[i], buffer.view,
                                         [](std::int64_t, std::int64_t, double want) { return std::fabs(want); })
                    : difference(got[i], expected[i], buffer.view);
            INFO(name_of(made.op) << " " << buffer.view.rows << " x " << buffer.view.cols << " " << buffer.name
                                  << ": relative RMS " << found.rms << ", largest " << found.largest);
            if (buffer.access == Access::in) {
                CHECK(got[i] == expected[i]);
            } else if (exponentials) {
                CHECK(found.largest <= kStepTolerance);
            } else if (buffer.view.dtype == DType::bf16) {
                CHECK(found.rms <= kStorageTolerance);
            } else {
                const bool own = dot_tolerance >= 0 && std::string(buffer.name) == "dot";
                CHECK(found.largest <= (own ? dot_tolerance : tolerance));
            }
            const View& view = buffer.view;
            for (std::int64_t row = 0; row + 1 < view.rows; ++row) {
                const auto begin = (row * view.ld + view.cols) * size_of(view.dtype);
                const auto size = static_cast<std::size_t>((view.ld - view.cols) * size_of(view.dtype));
                if (std::memcmp(got[i].data() + begin, expected[i].data() + begin, size) != 0) {
                    FAIL_CHECK(name_of(made.op) << ": the gap after row " << row << " of " << buffer.name);
                    break;
                }
            }
        }
        first = got;
    }
}

}  // namespace coda::test
