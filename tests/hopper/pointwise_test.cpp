// The pointwise ops and finishing reductions of the Hopper executor against cpu::run on the same operands.
//
// Tolerances. fp32 sums of n terms, both sides in fp32 in different order: n 2^-24 of the largest result for terms of
// one sign, and the same of the sum of magnitudes otherwise; 1e-5 covers both at these sizes. Logits' gradients are
// stored in bf16: 4e-3 relative RMS; their dot is of what is stored, where the exponentials' last bits let one of some
// thousand be rounded the other way, by 2^-8 of its term: 1e-3. A log-sum-exp near 10 is good to a few of its ulp:
// 1e-6.
#include <functional>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"

using namespace coda;
using namespace coda::test;
using bench::Buffer;
using bench::Fill;

namespace {

constexpr double kSumTolerance = 1e-5, kRoundedSumTolerance = 1e-3, kStorageTolerance = 4e-3, kLogTolerance = 1e-6;

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

/// Runs the op on both sides: inputs and gaps unchanged, results within the tolerance, a second run of the same bits.
void check(const Case& made, double tolerance) {
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
            const Difference found = difference(got[i], expected[i], buffer.view);
            INFO(name_of(made.op) << " " << buffer.view.rows << " x " << buffer.view.cols << " " << buffer.name
                                  << ": relative RMS " << found.rms << ", largest " << found.largest);
            if (buffer.access == Access::in) {
                CHECK(got[i] == expected[i]);
            } else if (buffer.view.dtype == DType::bf16) {
                CHECK(found.rms <= kStorageTolerance);
            } else {
                CHECK(found.largest <= tolerance);
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

Case finish_cross_entropy(std::int64_t tiles, std::int64_t rows) {
    Case made;
    FinishCrossEntropy op;
    op.partials = made.add("partials", DType::f32, tiles, 2 * rows, Fill::positive, 9);
    op.target_logit = made.add("target_logit", DType::f32, 1, rows, Fill::normal, 1);
    op.targets = made.add("targets", DType::i32, 1, rows, Fill::targets, 2);  // a third of them ignored
    op.lse = made.result("lse", 1, rows);
    op.loss = made.result("loss", 1, rows);
    made.op = op;
    return made;
}

Case cross_entropy_backward(std::int64_t rows, std::int64_t columns, std::int64_t vocab, std::int64_t gap, double lse) {
    Case made;
    CrossEntropyBackward op;
    op.logits = made.add("logits", DType::bf16, rows, columns, Fill::normal, 2, Access::inout, gap);
    op.lse = made.add("lse", DType::f32, 1, rows, Fill::ones, lse);
    op.targets = made.add("targets", DType::i32, 1, rows, Fill::targets, static_cast<double>(vocab));
    op.dot = made.result("dot", 1, rows);
    op.vocab = vocab;
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
                const Accumulate<Matrix> to = grad.accumulated("grad", columns, accumulate);
                column_sum.grad = {to, to.beta};
                grad.op = column_sum;
                check(grad, kSumTolerance);
            }
}

TEST_CASE("the loss", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t tiles : {1, 3, 128, 1002})
        for (const std::int64_t rows : {1, 45, 1024}) check(finish_cross_entropy(tiles, rows), kLogTolerance);
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

TEST_CASE("the gradient of the logits", "[gpu]") {
    if (!has_hopper()) return;
    check(cross_entropy_backward(300, 512, 512, 0, 8.2), kRoundedSumTolerance);
    check(cross_entropy_backward(40, 50304, 50257, 16, 12.8), kRoundedSumTolerance);
    check(cross_entropy_backward(9, 128256, 128256, 0, 13.7), kRoundedSumTolerance);
    check(cross_entropy_backward(5, 64, 3, 8, 3.1), kRoundedSumTolerance);
}

TEST_CASE("the gradient through RoPE", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t gap : {0, 8}) {
            Case made;
            RopeBackward op;
            const std::int64_t rows = 130, columns = 6 * head_dim;
            op.qkv = made.add("qkv", DType::bf16, rows, columns, Fill::normal, 1, Access::in, gap);
            op.dqkv = made.add("dqkv", DType::bf16, rows, columns, Fill::normal, 1, Access::inout, gap);
            op.positions = made.add("positions", DType::i32, 1, rows, Fill::positions, 96);
            op.rope = made.add("rope", DType::f32, 96, head_dim, Fill::angles, 1);
            op.dot = made.result("dot", 1, rows);
            op.rotated = 5 * head_dim;
            op.head_dim = head_dim;
            made.op = op;
            check(made, kSumTolerance);
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

TEST_CASE("the gradient of the logits moves bytes at the speed of a copy", "[gpu][.speed]") {
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
    const Case backward = cross_entropy_backward(8192, 128256, 128256, 0, 13.7);
    const bench::DeviceBuffers device(backward.buffers, 3);
    const hopper::Launch launch = hopper::prepare(backward.op, device.memory());
    const double ours = milliseconds([&] { launch(nullptr); });
    const auto bytes = static_cast<std::size_t>(backward.buffers[0].view.bytes());
    void* other = nullptr;
    CUDA_CHECK(cudaMalloc(&other, bytes));
    const double copy = milliseconds([&] {
        CUDA_CHECK(cudaMemcpyAsync(other, device.memory().address(backward.buffers[0].view), bytes,
                                   cudaMemcpyDeviceToDevice, nullptr));
    });
    CUDA_CHECK(cudaFree(other));
    WARN("CrossEntropyBackward 8192 x 128256: " << ours << " ms, a copy " << copy << " ms");
    CHECK(ours <= 1.15 * copy);

    const Case loss = finish_cross_entropy(1002, 32768);
    const bench::DeviceBuffers partials(loss.buffers, 3);
    const hopper::Launch finish = hopper::prepare(loss.op, partials.memory());
    const double spent = milliseconds([&] { finish(nullptr); });
    WARN("FinishCrossEntropy 32768 rows, 1002 tiles: "
         << spent << " ms, " << static_cast<double>(loss.buffers[0].view.bytes()) / spent * 1e-6 << " GB/s");
}
