// Forward attention's blocks draw their tiles from a counter, on a Hopper GPU: results do not depend on which block
// computes a tile, so launches of any number of blocks give the same bits as launches in which no block draws twice.
#include <initializer_list>

#include "kernels/hopper/run.h"
#include "kernels/ops/attention/case.h"
#include "tests/hopper/harness.h"

using namespace coda;
using cases::AttentionCase;
using cases::AttentionCaseShape;
using cases::Fill;
using test::Bytes;
using test::has_hopper;

namespace {

/// A case on the device, with random q, k and v and random documents, and with results that are poison.
class OnDevice {
  public:
    OnDevice(const AttentionCaseShape& shape, double mean_document)
        : made_(cases::make_attention(shape, kMixedBf16)), device_(buffers_of(made_), 43) {
        if (!shape.documents) return;
        const auto starts = cases::packed_documents(shape.batch, shape.seq_len, mean_document);
        CUDA_CHECK(cudaMemcpy(memory().address(made_.buffers[cases::kDocStart]), starts.data(), 4 * starts.size(),
                              cudaMemcpyHostToDevice));
    }

    const Memory& memory() const { return device_.memory(); }
    const Attention& op() const { return made_.forward; }

    /// The op on sequences [first, first + count).
    Attention of_sequences(std::int64_t first, std::int64_t count) const {
        Attention op = made_.forward;
        const std::int64_t row = first * op.seq_len, rows = count * op.seq_len;
        static_cast<View&>(op.qkv) = op.qkv.row_slice(row, rows);
        static_cast<View&>(op.o) = op.o.row_slice(row, rows);
        op.lse.offset += 4 * row;
        op.lse.cols = rows;
        if (op.doc_start) {
            op.doc_start.offset += 4 * row;
            op.doc_start.cols = op.doc_start.ld = rows;
        }
        return op;
    }

    void poison() const {
        for (const auto buffer : {cases::kO, cases::kLse}) {
            const View& view = made_.buffers[buffer];
            CUDA_CHECK(cudaMemset(memory().address(view), 0xff, static_cast<std::size_t>(view.span_bytes())));
        }
    }
    /// o and lse.
    Bytes results() const {
        CUDA_CHECK(cudaDeviceSynchronize());
        Bytes bytes;
        for (const auto buffer : {cases::kO, cases::kLse}) {
            const View& view = made_.buffers[buffer];
            bytes.emplace_back(static_cast<std::size_t>(view.span_bytes()));
            CUDA_CHECK(
                cudaMemcpy(bytes.back().data(), memory().address(view), bytes.back().size(), cudaMemcpyDeviceToHost));
        }
        return bytes;
    }
    std::int32_t counter() const {
        std::int32_t value = -1;
        CUDA_CHECK(cudaMemcpy(&value, memory().address(made_.buffers[cases::kNextTile]), 4, cudaMemcpyDeviceToHost));
        return value;
    }
    /// The results of launches over `count` sequences each, and of fewer at the end.
    Bytes in_launches_of(std::int64_t count, std::int64_t sequences) const {
        poison();
        for (std::int64_t first = 0; first < sequences; first += count)
            hopper::prepare(of_sequences(first, std::min(count, sequences - first)), memory())(nullptr);
        return results();
    }

  private:
    static std::vector<cases::Buffer> buffers_of(const AttentionCase& made) {
        std::vector<cases::Buffer> buffers;
        for (const View& view : made.buffers) buffers.push_back({"", view, Fill::nothing, 1, Access::in});
        buffers[cases::kQkv].fill = Fill::normal;
        buffers[cases::kNextTile].fill = Fill::positions;  // 0
        return buffers;
    }

    AttentionCase made_;
    cases::DeviceBuffers device_;
};

}  // namespace

// A launch of one sequence has 6 or 8 tiles of 8 heads, which fewer blocks than the GPU has SMs compute, one each.
TEST_CASE("attention's bits do not depend on which block draws a tile", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const double mean : {0.0, 60.0, 500.0, 2000.0}) {
            const AttentionCaseShape shape{30, 1000, 8, 2, head_dim, mean > 0};
            const OnDevice device(shape, mean);
            const Bytes alone = device.in_launches_of(1, shape.batch);
            for (const std::int64_t count : {2, 3, 7, 30}) {
                INFO("hd " << head_dim << ", documents of " << mean << ", launches of " << count << " sequences");
                CHECK((device.in_launches_of(count, shape.batch) == alone));
                CHECK(device.counter() == 0);
            }
        }
}

TEST_CASE("attention's counter is ready for every replay of a graph", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        const AttentionCaseShape shape{9, 1000, 8, 2, head_dim, true};
        const OnDevice device(shape, 300);
        const Bytes alone = device.in_launches_of(1, shape.batch);
        cudaStream_t stream{};
        cudaGraph_t graph{};
        cudaGraphExec_t exec{};
        CUDA_CHECK(cudaStreamCreate(&stream));
        // Launches of different shapes follow each other on one counter.
        const hopper::Launch first = hopper::prepare(device.of_sequences(0, 1), device.memory());
        const hopper::Launch all = hopper::prepare(device.op(), device.memory());
        CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 3; ++i) {
            first(stream);
            all(stream);
        }
        CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
        CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int replay = 0; replay < 20; ++replay) {
            device.poison();
            CUDA_CHECK(cudaGraphLaunch(exec, stream));
            CHECK((device.results() == alone));
            CHECK(device.counter() == 0);
        }
        CUDA_CHECK(cudaGraphExecDestroy(exec));
        CUDA_CHECK(cudaGraphDestroy(graph));
        CUDA_CHECK(cudaStreamDestroy(stream));
    }
}

TEST_CASE("attention without its counter is refused", "[attention]") {
    Attention op = cases::make_attention({1, 130, 4, 2, 64}, kMixedBf16).forward;
    op.next_tile = {};
    CHECK_THROWS_WITH(hopper::choose(op), Catch::Contains("Attention: operand next_tile is missing"));
}
