// The last op: SM b chooses sequence b's next token and commits it, that is, hands it to all warps of all SMs. Device.
//
// The epilogue warps have sent the largest logits that they saw, so greedy needs no pass over the logits. Otherwise the
// SM's consumer warps go over the row, as the op's own kernel does (row_choice.cuh).
#pragma once

#include "kernels/hopper/choice/row_choice.cuh"
#include "kernels/hopper/decode/warps/gemm.cuh"

namespace coda::hopper::decode {

/// All consumer warps of an SM.
struct ConsumerBlock {
    static constexpr int kWarps = kConsumerWarps, kThreads = 32 * kWarps;
    choice::Shared<kWarps>& shared;
    const WarpContext& ctx;
    const WorkItem& item;

    __device__ void sync() const {
        __syncwarp();
        if (ctx.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&ctx.state().consumers));
        std::uint32_t& meetings = ctx.state().meetings[ctx.warp];
        const std::uint32_t before = meetings;
        ctx.watchdog.wait_barrier(item, Awaited::warps, &ctx.state().consumers, before & 1);
        __syncwarp();  // all lanes have read it
        meetings = before + 1;
    }
};

class Chooser {
  public:
    __device__ Chooser(const WarpContext& ctx, const StepTokens& tokens, const WorkItem& item)
        : ctx_(ctx), tokens_(tokens), item_(item) {}

    __device__ void run() {
#pragma unroll 1
        for (int b = ctx_.sm; b < ctx_.shape().batch; b += ctx_.grid()) choose(b);
    }

  private:
    /// Only for warps that the step's commit waits for: others may come when the words are of a later step.
    __device__ void gather(int sequence, std::uint64_t& best, int& bad) const {
        const int sources = ctx_.grid() * kEpilogueWarps, batch = ctx_.shape().batch;
        const std::uint64_t* from = ctx_.words(ctx_.arguments.exchange.best) + 4 * sequence;
        const std::uint32_t epoch = item_.epoch - 1;  // of the head
        best = 0;
        bad = INT_MAX;
        constexpr int kLoads = 5;  // at the same time: the epilogue warps of 132 SMs in two turns
#pragma unroll 1
        for (int base = 0; base < sources; base += 32 * kLoads) {
            ptx::LlPair first[kLoads] = {};
            std::uint64_t third[kLoads] = {};
            ctx_.watchdog.wait_or_exit(item_, Awaited::commit, [&] {
#pragma unroll
                for (int u = 0; u < kLoads; ++u) {
                    const int source = min(base + 32 * u + ctx_.lane, sources - 1);
                    ptx::load_ll_pair(first[u], from + std::int64_t{4} * batch * source, true);
                    third[u] = ptx::load_ll(from + std::int64_t{4} * batch * source + 2);
                }
                bool all = true;
#pragma unroll
                for (int u = 0; u < kLoads; ++u)
                    all = all & not_before(first[u].first, epoch) & not_before(first[u].second, epoch) &
                          not_before(third[u], epoch);
                return all;
            });
#pragma unroll
            for (int u = 0; u < kLoads; ++u) {
                best = max(best, std::uint64_t{ll_data(first[u].first)} << 32 | ll_data(first[u].second));
                bad = min(bad, static_cast<int>(ll_data(third[u])));
            }
        }
        __syncwarp();
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            best = max(best, __shfl_xor_sync(kAllLanes, best, lanes));
            bad = min(bad, __shfl_xor_sync(kAllLanes, bad, lanes));
        }
        ptx::fence_gpu();
        __syncwarp();
    }

    /// A sequence that does not run, and a greedy one, need only the warp that commits. The others may come so late
    /// that they see the tokens of a later step; then this step did not need them, and they find the same again.
    __device__ void choose(int sequence) {
        const ChoiceRows& rows = ctx_.operands().choice;
        const bool runs = tokens_.running(sequence);
        if (ctx_.warp != 0 && (!runs || sampling::rules_of(rows.options[sequence]).greedy)) return;
        std::uint64_t best = 0;
        int bad = 0;
        // Before the wait: the flag lies in the host's memory, and the tokens would wait for it.
        const bool stop = *static_cast<const volatile std::int32_t*>(ctx_.arguments.cancel) != 0;
        gather(sequence, best, bad);
        ctx_.stamp(item_, Stamp::ready);
        const bool first_thread = threadIdx.x == 0;
        if (!runs || bad < ctx_.shape().vocab) {
            if (!first_thread) return;
            if (runs) {
                rows.status[sequence] = bad;
                rows.state[sequence] = static_cast<std::int32_t>(RowState::failed);
            }
            return commit(sequence, -1, false, stop);
        }
        const sampling::Rules rules = sampling::rules_of(rows.options[sequence]);
        int token = first_thread ? static_cast<int>(~static_cast<std::uint32_t>(best)) : -1;
        if (!rules.greedy) token = draw(sequence, rules, sampling::value_of(static_cast<std::uint32_t>(best >> 32)));
        if (token >= 0) {
            choice::advance(rows, sequence, token);
            commit(sequence, token, rows.state[sequence] == static_cast<std::int32_t>(RowState::running), stop);
        }
    }

    /// In one thread the token, -1 in all others. The warps' inputs serve as memory: this SM has used them, or its
    /// epilogue warps would not have sent what gather() waited for.
    __device__ int draw(int sequence, const sampling::Rules& rules, float largest) {
        using Shared = choice::Shared<kConsumerWarps>;
        static_assert(sizeof(Shared) <= kConsumerWarps * AttentionInput::bytes(1, 64, false),
                      "the inputs of the warps hold it");
        const ConsumerBlock block{*reinterpret_cast<Shared*>(ctx_.shared + ctx_.layout().input), ctx_, item_};
        const Operands& operands = ctx_.operands();
        const ChoiceRows& rows = operands.choice;
        const choice::Row<__nv_bfloat16> row{
            reinterpret_cast<const __nv_bfloat16*>(operands.logits) + sequence * operands.logits_ld,
            rows.seen == nullptr ? nullptr : rows.seen + sequence * rows.seen_ld, rules, operands.shape.vocab};
        const std::uint64_t draw = sampling::draw_of(rows.options[sequence].seed, rows.lengths[sequence]);
        block.sync();
        const int token = choice::token_of(row, block, largest, rules, draw);
        block.sync();  // no warp still reads what the next step's inputs overwrite
        return token;
    }

    /// One thread, after everything that it has written.
    __device__ void commit(int sequence, int token, bool running, bool stop) const {
        const Arguments& arguments = ctx_.arguments;
        arguments.made[tokens_.step * ctx_.shape().batch + sequence] = token;
        std::uint64_t* words = ctx_.words(arguments.exchange.token);
        ptx::fence_gpu();
        ptx::fence_async();
        if (sequence == 0) ptx::store_ll(words + ctx_.shape().batch, ll_word(stop ? 1 : 0, item_.epoch));
        ptx::store_ll(words + sequence,
                      ll_word(running ? static_cast<std::uint32_t>(token) | 0x80000000u : 0, item_.epoch));
    }

    const WarpContext ctx_;
    const StepTokens tokens_;
    WorkItem item_;
};

/// Not inlined: its registers would come on top of the GEMM loops' registers. It reads a copy of the arguments in
/// shared memory, since a pointer to the kernel's parameters would make every use of them a load, in the GEMMs too.
inline __device__ __noinline__ void run_choice(const Arguments& shared_arguments, char* shared, StepTokens tokens,
                                               WorkItem item) {
    Chooser(WarpContext(shared_arguments, shared, Instance{}), tokens, item).run();
}

}  // namespace coda::hopper::decode
