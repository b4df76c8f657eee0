// The last stage: SM b chooses sequence b's next token, tells it to all, and so closes the step. Device.
//
// The epilogue warps have sent the largest logits that they saw, so greedy needs no pass over the logits. Otherwise the
// SM's consumer warps go over the row, as the op's own kernel does (row_choice.cuh).
#pragma once

#include "kernels/hopper/choice/row_choice.cuh"
#include "kernels/hopper/decode/warps/product.cuh"

namespace coda::hopper::decode {

/// All consumer warps of an SM.
struct ConsumerBlock {
    static constexpr int kWarps = kConsumerWarps, kThreads = 32 * kWarps;
    choice::Shared<kWarps>& shared;
    const Self& self;
    const Place& place;
    std::uint32_t& meetings;

    __device__ void sync() const {
        __syncwarp();
        if (self.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&self.state.consumers));
        self.watch.wait_barrier(place, Awaited::warps, &self.state.consumers, meetings & 1);
        ++meetings;
    }
};

class Chooser {
  public:
    __device__ Chooser(const Self& self, const Step& step, const Place& place, std::uint32_t meetings)
        : self_(self), step_(step), place_(place), meetings_(meetings) {}

    /// Returns how often the consumer warps have met.
    __device__ std::uint32_t run() {
#pragma unroll 1
        for (int b = self_.sm; b < self_.shape().batch; b += self_.grid) choose(b);
        return meetings_;
    }

  private:
    /// In warps without which the step does not close: no others are sure to find this step's words.
    __device__ void gather(int sequence, std::uint64_t& best, int& bad) const {
        const int sources = self_.grid * kEpilogueWarps, batch = self_.shape().batch;
        const std::uint64_t* from = self_.words(self_.arguments.exchange.best) + 4 * sequence;
        const std::uint32_t epoch = place_.epoch - 1;  // of the head
        best = 0;
        bad = INT_MAX;
#pragma unroll 1
        for (int base = 0; base < sources; base += 32) {
            const int source = min(base + self_.lane, sources - 1);
            ptx::Words first{}, second{};
            self_.watch.wait_or_exit(place_, Awaited::close, [&] {
                first = ptx::load_words(from + std::int64_t{4} * batch * source);
                second = ptx::load_words(from + std::int64_t{4} * batch * source + 2);
                return not_before(first.first, epoch) && not_before(first.second, epoch) &&
                       not_before(second.first, epoch);
            });
            best = max(best, std::uint64_t{content_of(first.first)} << 32 | content_of(first.second));
            bad = min(bad, static_cast<int>(content_of(second.first)));
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

    /// A sequence that does not run, and a greedy one, need no warp but the one that closes the step. The others may
    /// come so late that they see the tokens of a later step; then they were not needed in this one, and find so again.
    __device__ void choose(int sequence) {
        const ChoiceRows& rows = self_.operands().choice;
        const bool runs = step_.running(sequence);
        if (self_.warp != 0 && (!runs || sampling::rules_of(rows.options[sequence]).greedy)) return;
        std::uint64_t best = 0;
        int bad = 0;
        gather(sequence, best, bad);
        self_.stamp(place_, Stamp::ready);
        const bool first_thread = threadIdx.x == 0;
        if (!runs || bad < self_.shape().vocab) {
            if (!first_thread) return;
            if (runs) {
                rows.status[sequence] = bad;
                rows.state[sequence] = static_cast<std::int32_t>(RowState::failed);
            }
            return close(sequence, -1, false);
        }
        const sampling::Rules rules = sampling::rules_of(rows.options[sequence]);
        int token = first_thread ? static_cast<int>(~static_cast<std::uint32_t>(best)) : -1;
        if (!rules.greedy) token = draw(sequence, rules, sampling::value_of(static_cast<std::uint32_t>(best >> 32)));
        if (token >= 0) {
            choice::advance(rows, sequence, token);
            close(sequence, token, rows.state[sequence] == static_cast<std::int32_t>(RowState::running));
        }
    }

    /// In one thread the token, -1 in all others. The warps' inputs serve as memory: this SM has used them, or its
    /// epilogue warps would not have sent what gather() waited for.
    __device__ int draw(int sequence, const sampling::Rules& rules, float largest) {
        using Shared = choice::Shared<kConsumerWarps>;
        static_assert(sizeof(Shared) <= 8 * (2 * kSliceColumns + 64), "the inputs of eight warps hold it");
        const ConsumerBlock block{*reinterpret_cast<Shared*>(self_.shared + self_.layout().input), self_, place_,
                                  meetings_};
        const Operands& operands = self_.operands();
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
    __device__ void close(int sequence, int token, bool running) const {
        const Arguments& arguments = self_.arguments;
        arguments.made[step_.number * self_.shape().batch + sequence] = token;
        std::uint64_t* words = self_.words(arguments.exchange.token);
        ptx::fence_gpu();
        ptx::fence_async();
        if (sequence == 0) {
            const bool stop = *static_cast<const volatile std::int32_t*>(arguments.cancel) != 0;
            ptx::store_word(words + self_.shape().batch, word_of(stop ? 1 : 0, place_.epoch));
        }
        ptx::store_word(words + sequence,
                        word_of(running ? static_cast<std::uint32_t>(token) | 0x80000000u : 0, place_.epoch));
    }

    const Self self_;
    const Step step_;
    Place place_;
    std::uint32_t meetings_;
};

/// A function of its own, so that its registers do not add to those of the products.
inline __device__ __noinline__ std::uint32_t choose_stage(const Arguments& arguments, char* shared, Step step,
                                                          Place place, std::uint32_t meetings) {
    if (static_cast<int>(blockIdx.x) >= arguments.operands.shape.batch) return meetings;
    constexpr bool kPanels = false;  // whether the kernel has them or not: this stage uses none
    return Chooser(Self(arguments, shared, kPanels), step, place, meetings).run();
}

}  // namespace coda::hopper::decode
