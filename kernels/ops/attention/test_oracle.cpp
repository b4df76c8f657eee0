// The oracle against the attention kernels: causal and document masks, grouped heads, whole and in bands of queries.
#include <algorithm>
#include <utility>

#include "kernels/hopper/run.h"
#include "kernels/ops/attention/case.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;
using cases::AttentionCase;
using cases::AttentionCaseShape;
using cases::Fill;

namespace {

/// Device buffers of a case: normal q, k, v and dout; doc_start as the kernels want it; lse by the forward kernel.
class Problem {
  public:
    explicit Problem(const AttentionCaseShape& shape) : Problem(shape, cases::make_attention(shape, kMixedBf16)) {}
    Problem(const AttentionCaseShape& shape, AttentionCase made)
        : made_(std::move(made)), device_(buffers_of(made_, shape), 31) {
        if (shape.documents) {
            const std::vector<std::int32_t> starts = documents(shape);
            CUDA_CHECK(cudaMemcpy(memory().address(made_.buffers[cases::kDocStart]), starts.data(), starts.size() * 4,
                                  cudaMemcpyHostToDevice));
        }
    }

    const AttentionCase& made() const { return made_; }
    const Memory& memory() const { return device_.memory(); }
    /// Makes the lse that the gradients read.
    void run_forward() const { hopper::prepare(made_.forward, memory())(nullptr); }

  private:
    static std::vector<cases::Buffer> buffers_of(const AttentionCase& made, const AttentionCaseShape& shape) {
        std::vector<cases::Buffer> buffers;
        for (const View& view : made.buffers) buffers.push_back({"", view, Fill::nothing, 1, Access::in});
        for (const auto matrix : {cases::kQkv, cases::kDout, cases::kDelta, cases::kPre})
            buffers[matrix].fill = Fill::normal;
        buffers[cases::kGain].fill = Fill::positive;
        buffers[cases::kBias].fill = Fill::normal;
        buffers[cases::kRho] = {"", made.buffers[cases::kRho], Fill::ones, 0.75, Access::in};
        buffers[cases::kRope].fill = Fill::angles;
        buffers[cases::kRstd] = {"", made.buffers[cases::kRstd], Fill::ones, 0.75, Access::in};
        buffers[cases::kPositions] = {"", made.buffers[cases::kPositions], Fill::positions,
                                      static_cast<double>(shape.seq_len), Access::in};
        buffers[cases::kNextTile] = {"", made.buffers[cases::kNextTile], Fill::positions, 1, Access::inout};  // 0
        if (buffers.size() > cases::kScale) {
            buffers[cases::kScale] = {"", made.buffers[cases::kScale], Fill::ones, 16, Access::in};
            buffers[cases::kAmax] = {"", made.buffers[cases::kAmax], Fill::ones, 0, Access::inout};
        }
        buffers[cases::kScratch].view.dtype = DType::f32;
        buffers[cases::kScratch].view.cols = buffers[cases::kScratch].view.ld =
            made.buffers[cases::kScratch].cols / size_of(DType::f32);
        return buffers;
    }
    /// A document begins at every position that is a multiple of 37 or of 150.
    static std::vector<std::int32_t> documents(const AttentionCaseShape& shape) {
        std::vector<std::int32_t> starts;
        for (std::int64_t m = 0; m < shape.rows(); ++m) {
            const std::int64_t position = m % shape.seq_len;
            starts.push_back(static_cast<std::int32_t>(std::max(position / 37 * 37, position / 150 * 150)));
        }
        return starts;
    }

    AttentionCase made_;
    cases::DeviceBuffers device_;
};

void judge(oracle::Oracle& oracle, const AttentionCaseShape& shape, const std::string& label) {
    INFO("B " << shape.batch << " T " << shape.seq_len << " H " << shape.heads << " Hk " << shape.kv_heads << " hd "
              << shape.head_dim << (shape.documents ? " documents " : " ") << label);
    const Problem problem(shape);
    judges_rightly(oracle, problem.memory(), problem.made().forward, label);
    judges_rightly(oracle, problem.memory(), problem.made().backward, label);
    judges_rightly(oracle, problem.memory(), problem.made().rope_backward, label);
    judges_rightly(oracle, problem.memory(), problem.made().norm_backward, label);
    judges_rightly(oracle, problem.memory(), problem.made().bias_backward, label);
    judges_rightly(oracle, problem.memory(), problem.made().unrotated_backward, label);
}

}  // namespace

TEST_CASE("the oracle judges attention", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle whole;
    for (const std::int64_t head_dim : {64, 128}) {
        // Room for a head's keys, values, their gradients and dgain in fp32, and for about a fifth of its 300 rows of
        // logits.
        oracle::Oracle banded((5 * 300 * head_dim + 2 * 60 * 300 + 3 * 60 * head_dim) * 4 + 4096);
        for (const bool documents : {false, true}) {
            judge(whole, {2, 300, 4, 2, head_dim, documents, 8}, "whole");
            judge(banded, {2, 300, 4, 2, head_dim, documents, 8}, "in bands");
        }
        judge(whole, {2, 17, 4, 1, head_dim, true}, "short");
        // Where a query sees only itself, dq and dk are 0 up to fp32 rounding: there is nothing to plant a mistake in.
        const Problem alone({3, 1, 2, 2, head_dim});
        agrees(whole, alone.memory(), alone.made().forward, "alone");
        agrees(whole, alone.memory(), alone.made().backward, "alone");
        agrees(whole, alone.memory(), alone.made().rope_backward, "alone");
        agrees(whole, alone.memory(), alone.made().norm_backward, "alone");
        agrees(whole, alone.memory(), alone.made().bias_backward, "alone");
    }
}

TEST_CASE("the oracle judges attention's codes", "[gpu][oracle][f8]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true}) {
            // Few rows: among many, one wrong row is a smaller error than e5m2's rounding.
            const AttentionCaseShape shape{2, 40, 4, 2, head_dim, documents, 8};
            AttentionCase forward = cases::make_attention(shape, kMixedBf16), backward = forward;
            forward.forward.o_codes = add_codes(forward, cases::kO, DType::f8e4m3);
            const Rounded codes = add_codes(backward, cases::kDqkv, DType::f8e5m2);
            // Codes of o are judged by o as stored, and of dqkv transposed ones and amax by those by rows.
            const Problem first(shape, forward), second(shape, backward);
            judges_rightly(oracle, first.memory(), first.made().forward, "codes of o", launch_on_hopper,
                           {"o_f8", "o_f8_t", "o_amax"});
            for (AttentionBackward op : {second.made().backward, second.made().rope_backward,
                                         second.made().norm_backward, second.made().bias_backward}) {
                op.dqkv = codes;
                second.run_forward();
                judges_rightly(oracle, second.memory(), op, "codes of dqkv", launch_on_hopper, {"dqkv_t", "dqkv_amax"});
            }
        }
}

TEST_CASE("the oracle judges attention over a long context", "[gpu][oracle]") {
    if (!has_hopper()) return;
    // More logits than the work space holds, so the oracle cuts its own bands.
    oracle::Oracle oracle;
    for (const std::int64_t head_dim : {64, 128}) judge(oracle, {1, 8192, 2, 1, head_dim, true}, "long");
}
