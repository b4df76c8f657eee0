// TargetLogit, FinishCrossEntropy and ReduceLoss on the GPU against cpu::run.
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kTargetExponential = 0x1p-58;  // kernels/math/cross_entropy.h

/// Rows whose sums are larger than any exponential; a third of the targets are ignored. columns 0: an evaluation.
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

// Everything in a row but its target is 2^-12 of the target: rounding by itself would swallow such a loss, gradient or
// dot.
TEST_CASE("the loss of targets that the model is sure of", "[gpu]") {
    if (!has_hopper()) return;
    Case made = finish_cross_entropy(1, 200, 24, Fill::ones);
    for (Buffer& buffer : made.buffers) {
        if (std::string(buffer.name) == "sums") buffer.scale = kTargetExponential * (1 + 0x1p-12);
        if (std::string(buffer.name) == "exponentials") buffer.fill = Fill::ones;
    }
    check(made, kSumTolerance);
    const cases::DeviceBuffers device(made.buffers, 17);
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
    const cases::DeviceBuffers device(targets.buffers, 3);
    const hopper::Launch launch = hopper::prepare(targets.op, device.memory());
    const double ours = milliseconds([&] { launch(nullptr); });
    // The op reads as many rows of the table as of a; a copy of a reads and writes as much.
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
    const cases::DeviceBuffers sums(loss.buffers, 3);
    const hopper::Launch finish = hopper::prepare(loss.op, sums.memory());
    const double spent = milliseconds([&] { finish(nullptr); });
    WARN("FinishCrossEntropy 32768 rows, 1002 tiles: "
         << spent << " ms, " << static_cast<double>(loss.buffers[0].view.bytes()) / spent * 1e-6 << " GB/s");
}

TEST_CASE("the loss", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t tiles : {1, 3, 128, 1002})
        for (const std::int64_t rows : {1, 45, 1024}) {
            check(finish_cross_entropy(tiles, rows, 0), kLogTolerance);
            check(finish_cross_entropy(tiles, rows, 23), kSumTolerance, kRoundedSumTolerance);
            // Equal powers of two: the sums are exact on both sides, and so is the stored difference.
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
