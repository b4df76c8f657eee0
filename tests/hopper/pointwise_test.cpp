// The pointwise ops and finishing reductions of the Hopper executor against cpu::run on the same operands.
//
// Tolerances. fp32 sums of n terms, both sides in fp32 in different order: n 2^-24 of the largest result for terms of
// one sign, and the same of the sum of magnitudes otherwise; 1e-5 covers both at these sizes, and the dot products of
// TargetLogit. A loss near 10 is good to a few of its ulp: 1e-6. Gradients through RoPE are stored in bf16: 4e-3
// relative RMS. What FinishCrossEntropy stores in bf16 may be rounded the other way by the sums' last bits in one of
// some thousand rows: 2^-7 of itself; its dot is of what is stored, so it is off by that times the target's logit, up
// to 8: 6e-2, where the sums are not exact.
#include <functional>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"

using namespace coda;
using namespace coda::test;
using bench::Buffer;
using bench::Fill;

namespace {

constexpr double kSumTolerance = 1e-5, kRoundedSumTolerance = 6e-2, kStorageTolerance = 4e-3, kStepTolerance = 0x1p-7,
                 kLogTolerance = 1e-6;

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

/// Runs the op on both sides: inputs and gaps unchanged, results within the tolerance (`dot` has its own, unless it is
/// negative), a second run of the same bits.
void check(const Case& made, double tolerance, double dot_tolerance = -1) {
    Bytes first;
    for (int run = 0; run < 2; ++run) {
        const bench::DeviceBuffers device(made.buffers, 17);
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

constexpr double kTargetExponential = 0x1p-58;  // kernels/math/cross_entropy.h

/// Rows of sums that are larger than any exponential; a third of the targets are ignored. columns 0: an evaluation.
Case finish_cross_entropy(std::int64_t tiles, std::int64_t rows, std::int64_t columns, Fill sums = Fill::positive) {
    Case made;
    FinishCrossEntropy op;
    op.sums = made.add("sums", DType::f32, tiles, 2 * rows, sums, 8 * kTargetExponential);
    op.target_logit = made.add("target_logit", DType::f32, 1, rows, Fill::normal, 3);
    op.targets = made.add("targets", DType::i32, 1, rows, Fill::targets, 2);
    if (columns > 0) {
        op.exponentials =
            made.add("exponentials", DType::bf16, rows, columns, Fill::positive, kTargetExponential, Access::inout, 8);
        op.scale = made.result("scale", 1, rows);
        op.dot = made.result("dot", 1, rows);
    }
    op.loss = made.result("loss", 1, rows);
    made.op = op;
    return made;
}

Case target_logit(std::int64_t rows, std::int64_t width, std::int64_t vocab, bool rstd, std::int64_t gap) {
    Case made;
    TargetLogit op;
    op.a = made.add("a", DType::bf16, rows, width, Fill::normal, 1, Access::in, gap);
    op.table = made.add("table", DType::bf16, vocab, width, Fill::normal, 1 / std::sqrt(static_cast<double>(width)),
                        Access::in, gap);
    if (rstd) op.rstd = made.add("rstd", DType::f32, 1, rows, Fill::positive, 1);
    op.targets = made.add("targets", DType::i32, 1, rows, Fill::targets, static_cast<double>(vocab));
    op.target_logit = made.result("target_logit", 1, rows);
    made.op = op;
    return made;
}

}  // namespace

TEST_CASE("sums of tiles", "[gpu]") {
    if (!has_hopper()) return;
    // Fewer tiles than segments, and more; columns that do not fill a block.
    for (const std::int64_t tiles : {1, 5, 16, 67, 515})
        for (const std::int64_t columns : {1, 37, 2056})
            for (const bool accumulate : {false, true}) {
                Case rstd, rows, grad;
                FinishRstd finish;
                finish.square = rstd.add("square", DType::f32, tiles, columns, Fill::positive, 5, Access::in, 4);
                finish.rstd = rstd.result("rstd", 1, columns);
                finish.width = 128 * tiles;
                finish.eps = 1e-2;
                rstd.op = finish;
                check(rstd, kSumTolerance);

                FinishRowSum row_sum;
                row_sum.partials = rows.add("partials", DType::f32, tiles, columns, Fill::positive, 1);
                row_sum.sum = rows.result("sum", 1, columns);
                rows.op = row_sum;
                check(rows, kSumTolerance);

                FinishColumnSum column_sum;
                column_sum.partials = grad.add("partials", DType::f32, tiles, columns, Fill::positive, 1);
                if (accumulate) column_sum.gamma = grad.add("gamma", DType::f32, 1, columns, Fill::positive, 1);
                const Accumulate<Matrix> to = grad.accumulated("grad", columns, accumulate);
                column_sum.grad = {to, to.beta};
                grad.op = column_sum;
                check(grad, kSumTolerance);
            }
}

TEST_CASE("the loss", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t tiles : {1, 3, 128, 1002})
        for (const std::int64_t rows : {1, 45, 1024}) {
            check(finish_cross_entropy(tiles, rows, 0), kLogTolerance);
            check(finish_cross_entropy(tiles, rows, 23), kSumTolerance, kRoundedSumTolerance);
            // Equal powers of two: both sides' sums are exact, and so is what is stored of their difference.
            check(finish_cross_entropy(tiles, rows, 23, Fill::ones), kSumTolerance);
        }
    for (const std::int64_t rows : {1, 1000, 33000})
        for (const bool accumulate : {false, true}) {
            Case made;
            ReduceLoss op;
            op.loss = made.add("loss", DType::f32, 1, rows, Fill::positive, 8);
            op.alpha = made.add("alpha", DType::f32, 1, 1, Fill::ones, 1.0 / 33000);
            const Accumulate<Matrix> to = made.accumulated("total", 1, accumulate);
            op.total = {to, to.beta};
            made.op = op;
            check(made, kLogTolerance);
        }
}

// The rest of a row beside its target is 2^-12 of it: a loss, a gradient and a dot that rounding alone would swallow.
TEST_CASE("the loss of targets that the model is sure of", "[gpu]") {
    if (!has_hopper()) return;
    Case made = finish_cross_entropy(1, 200, 24, Fill::ones);
    for (Buffer& buffer : made.buffers) {
        if (std::string(buffer.name) == "sums") buffer.scale = kTargetExponential * (1 + 0x1p-12);
        if (std::string(buffer.name) == "exponentials") buffer.fill = Fill::ones;
    }
    check(made, kSumTolerance);
    const bench::DeviceBuffers device(made.buffers, 17);
    hopper::prepare(made.op, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    const auto& op = std::get<FinishCrossEntropy>(made.op);
    for (std::int64_t row = 0; row < 200; ++row) {
        std::int32_t target = 0;
        std::memcpy(&target, got[static_cast<std::size_t>(op.targets.buffer)].data() + 4 * row, sizeof target);
        for (std::int64_t column = 0; column < 24; ++column)
            CHECK(element(got, op.exponentials, row, column) == (column == target ? -0x1p-70 : kTargetExponential));
        const double loss = target < 0 ? 0 : std::log1p(0x1p-12);
        CHECK(std::fabs(element(got, op.loss, 0, row) - loss) <= 1e-6 * loss);
    }
}

TEST_CASE("the targets' logits", "[gpu]") {
    if (!has_hopper()) return;
    for (const bool rstd : {false, true}) {
        check(target_logit(1, 8, 3, rstd, 0), kSumTolerance);
        check(target_logit(45, 72, 5, rstd, 8), kSumTolerance);
        check(target_logit(1030, 2048, 1000, rstd, 0), kSumTolerance);
        check(target_logit(300, 2056, 50257, rstd, 16), kSumTolerance);
        check(target_logit(33, 16384, 64, rstd, 0), kSumTolerance);
    }
}

TEST_CASE("zero fills rows and leaves gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t gap : {0, 3}) {
        Case made;
        made.op = Zero{made.add("out", DType::f32, 33, 100, Fill::normal, 1, Access::out, gap)};
        check(made, 0);
    }
}

TEST_CASE("the targets' logits move bytes at the speed of a copy", "[gpu][.speed]") {
    if (!has_hopper()) return;
    const auto milliseconds = [](const std::function<void()>& work) {
        cudaEvent_t begin = nullptr, end = nullptr;
        CUDA_CHECK(cudaEventCreate(&begin));
        CUDA_CHECK(cudaEventCreate(&end));
        work();
        CUDA_CHECK(cudaEventRecord(begin));
        for (int i = 0; i < 10; ++i) work();
        CUDA_CHECK(cudaEventRecord(end));
        CUDA_CHECK(cudaEventSynchronize(end));
        float total = 0;
        CUDA_CHECK(cudaEventElapsedTime(&total, begin, end));
        CUDA_CHECK(cudaEventDestroy(begin));
        CUDA_CHECK(cudaEventDestroy(end));
        return static_cast<double>(total) / 10;
    };
    const Case targets = target_logit(32768, 2048, 128256, true, 0);
    const bench::DeviceBuffers device(targets.buffers, 3);
    const hopper::Launch launch = hopper::prepare(targets.op, device.memory());
    const double ours = milliseconds([&] { launch(nullptr); });
    // It reads as many rows of the table as of a; a copy of a reads and writes as much.
    const auto bytes = static_cast<std::size_t>(targets.buffers[0].view.bytes());
    void* other = nullptr;
    CUDA_CHECK(cudaMalloc(&other, bytes));
    const double copy = milliseconds([&] {
        CUDA_CHECK(cudaMemcpyAsync(other, device.memory().address(targets.buffers[0].view), bytes,
                                   cudaMemcpyDeviceToDevice, nullptr));
    });
    CUDA_CHECK(cudaFree(other));
    WARN("TargetLogit 32768 x 2048: " << ours << " ms, a copy " << copy << " ms");
    CHECK(ours <= 1.15 * copy);

    const Case loss = finish_cross_entropy(1002, 32768, 128256);
    const bench::DeviceBuffers sums(loss.buffers, 3);
    const hopper::Launch finish = hopper::prepare(loss.op, sums.memory());
    const double spent = milliseconds([&] { finish(nullptr); });
    WARN("FinishCrossEntropy 32768 rows, 1002 tiles: "
         << spent << " ms, " << static_cast<double>(loss.buffers[0].view.bytes()) / spent * 1e-6 << " GB/s");
}
