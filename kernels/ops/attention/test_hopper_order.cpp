// The order of attention's work on a Hopper GPU: blocks draw it from a counter, and results do not depend on which
// block draws what, or when. So launches of any number of blocks give the same bits as launches in which no block draws
// twice.
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

/// The op on sequences [first, first + count): rows of matrices and of dbias, columns of what has a column per token.
template <class Op>
Op of_sequences(Op op, std::int64_t first, std::int64_t count) {
    const std::int64_t row = first * op.seq_len, rows = count * op.seq_len, all = op.qkv.rows;
    visit_operands(op, [&](const char*, View& view) {
        if (!view) return;
        if (view.rows == all) {
            view = view.row_slice(row, rows);
        } else if (view.cols == all) {
            view.offset += row * size_of(view.dtype);
            view.cols = rows;
            if (view.rows == 1) view.ld = rows;
        }
    });
    if constexpr (requires { op.dbias; }) {
        const std::int64_t tiles = op.sum_tiles(op.seq_len, op.seq_len);
        if (op.dbias) op.dbias = op.dbias.row_slice(first * tiles, count * tiles);
    }
    return op;
}

/// A case on the device, with random operands and random documents. The results of an op are poison before it runs.
class OnDevice {
  public:
    OnDevice(const AttentionCaseShape& shape, double mean_document)
        : shape_(shape), made_(cases::make_attention(shape, kMixedBf16)), device_(buffers_of(made_), 43) {
        if (!shape.documents) return;
        const auto starts = cases::packed_documents(shape.batch, shape.seq_len, mean_document);
        CUDA_CHECK(cudaMemcpy(memory().address(made_.buffers[cases::kDocStart]), starts.data(), 4 * starts.size(),
                              cudaMemcpyHostToDevice));
    }

    const Memory& memory() const { return device_.memory(); }
    const AttentionCase& made() const { return made_; }
    std::int32_t counter() const {
        std::int32_t value = -1;
        CUDA_CHECK(cudaMemcpy(&value, memory().address(made_.buffers[cases::kNextTile]), 4, cudaMemcpyDeviceToHost));
        return value;
    }

    template <class Op>
    void poison(const Op& op) const {
        for_each_result(op, [&](const View& view) {
            CUDA_CHECK(cudaMemset(memory().address(view), 0xff, static_cast<std::size_t>(view.span_bytes())));
        });
    }
    template <class Op>
    Bytes results(const Op& op) const {
        CUDA_CHECK(cudaDeviceSynchronize());
        Bytes bytes;
        for_each_result(op, [&](const View& view) {
            bytes.emplace_back(static_cast<std::size_t>(view.span_bytes()));
            CUDA_CHECK(
                cudaMemcpy(bytes.back().data(), memory().address(view), bytes.back().size(), cudaMemcpyDeviceToHost));
        });
        return bytes;
    }
    /// The results of launches over `count` sequences each, and of fewer at the end.
    template <class Op>
    Bytes in_launches_of(std::int64_t count, const Op& op) const {
        poison(op);
        for (std::int64_t first = 0; first < shape_.batch; first += count)
            hopper::prepare(of_sequences(op, first, std::min(count, shape_.batch - first)), memory())(nullptr);
        return results(op);
    }

  private:
    template <class Op, class Fn>
    static void for_each_result(const Op& op, const Fn& fn) {
        for_each_operand(op, [&](const char*, const View& view, Access access) {
            if (access == Access::out) fn(view);
        });
    }
    static std::vector<cases::Buffer> buffers_of(const AttentionCase& made) {
        std::vector<cases::Buffer> buffers;
        for (const View& view : made.buffers) buffers.push_back({"", view, Fill::nothing, 1, Access::in});
        for (const auto buffer : {cases::kQkv, cases::kDout, cases::kDelta, cases::kLse, cases::kRstd, cases::kBias})
            buffers[buffer].fill = Fill::normal;
        buffers[cases::kRope].fill = Fill::angles;
        buffers[cases::kNextTile].fill = Fill::positions;  // 0
        buffers[cases::kPositions].fill = Fill::positions;
        buffers[cases::kPositions].scale = static_cast<double>(made.forward.seq_len);
        return buffers;
    }

    AttentionCaseShape shape_;
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
            const Bytes single = device.in_launches_of(1, device.made().forward);
            for (const std::int64_t count : {2, 3, 7, 30}) {
                INFO("hd " << head_dim << ", documents of " << mean << ", launches of " << count << " sequences");
                CHECK((device.in_launches_of(count, device.made().forward) == single));
                CHECK(device.counter() == 0);
            }
        }
}

// A launch of one sequence has 8 or 32 blocks, which all run at once. One of all sequences has 1024, in sections of 19
// or 10 pairs and a last one, so that blocks wait for those that began before them on other SMs.
TEST_CASE("attention's gradients do not depend on the sections of its order", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t kv_heads : {1, 4})
            for (const double mean : {0.0, 300.0}) {
                const AttentionCaseShape shape{128 / kv_heads, 1024, 3 * kv_heads, kv_heads, head_dim, mean > 0};
                const OnDevice device(shape, mean);
                const AttentionCase& made = device.made();
                int form = 0;
                for (const AttentionBackward& op :
                     {made.backward, made.rope_backward, made.bias_backward, made.unrotated_backward}) {
                    const Bytes single = device.in_launches_of(1, op);
                    for (const std::int64_t count : {std::int64_t{3}, shape.batch}) {
                        INFO("form " << form << ", hd " << head_dim << ", " << kv_heads << " kv heads, documents of "
                                     << mean << ", launches of " << count << " sequences");
                        CHECK((device.in_launches_of(count, op) == single));
                    }
                    ++form;
                }
            }
}

TEST_CASE("attention's counter is ready for every replay of a graph", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        const AttentionCaseShape shape{9, 1000, 8, 2, head_dim, true};
        const OnDevice device(shape, 300);
        const Attention& op = device.made().forward;
        const Bytes single = device.in_launches_of(1, op);
        cudaStream_t stream{};
        cudaGraph_t graph{};
        cudaGraphExec_t exec{};
        CUDA_CHECK(cudaStreamCreate(&stream));
        // Launches of different shapes follow each other on one counter.
        const hopper::Launch first = hopper::prepare(of_sequences(op, 0, 1), device.memory());
        const hopper::Launch all = hopper::prepare(op, device.memory());
        CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 3; ++i) {
            first(stream);
            all(stream);
        }
        CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
        CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int replay = 0; replay < 20; ++replay) {
            device.poison(op);
            CUDA_CHECK(cudaGraphLaunch(exec, stream));
            CHECK((device.results(op) == single));
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
