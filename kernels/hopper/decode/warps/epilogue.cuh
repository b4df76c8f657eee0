// The end of a product's tile in an epilogue warp: adds the consumer warps' parts in order, and does what the op does
// with a result. Device.
//
// A tile has 16 rows: 8 pairs, which RoPE rotates, SwiGLU joins and a word holds. A lane takes a pair of a sequence;
// from five sequences on it takes two.
#pragma once

#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/decode/exchange/panel_output.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/math/rope.h"
#include "kernels/math/sampling.h"

namespace coda::hopper::decode {

inline constexpr int kPairs = kTileRows / 2;
inline constexpr int kLaneTasks = kPairs * kMaxBatch / 32;

__device__ __forceinline__ std::uint32_t load_pair(const Bf16* address) {
    return __ldg(reinterpret_cast<const std::uint32_t*>(address));
}

/// The largest logit of a sequence among those that a lane has seen: its key, and below it the complement of its id, so
/// that of equal logits the lowest id is largest. And the lowest id of a logit that is not finite.
struct BestLogit {
    std::uint64_t best = 0;
    int bad = INT_MAX;

    __device__ void add(float logit, int id, bool seen, const sampling::Rules& rules) {
        if (!isfinite(logit)) bad = min(bad, id);
        const std::uint32_t key = sampling::key_of(sampling::penalised(logit, seen, rules));
        best = max(best, std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(id));
    }
    __device__ void join_lanes(int lanes) {
        best = max(best, __shfl_xor_sync(kAllLanes, best, lanes));
        bad = min(bad, __shfl_xor_sync(kAllLanes, bad, lanes));
    }
};

class ProductEpilogue {
  public:
    __device__ ProductEpilogue(const Self& self, const Stage& stage, const Step& step, int index, const Place& place)
        : self_(self), stage_(stage), step_(step), index_(index), place_(place) {}

    /// The own tiles with an even or an odd number, counted over all stages from `first`.
    __device__ void run(int epilogue_warp, int first) {
        const OwnTiles own = self_.tiles_of(stage_);
        const Slices slices = slices_of(stage_.columns);
        if (self_.panels) begin_panels();
        if (stage_.kind == StageKind::head) begin_head();
        for (int i = 0; i < own.number; ++i) {
            if ((first + i) % kEpilogueWarps != epilogue_warp) continue;
            place_.tile = own.tile(i);
            tile(own.tile(i), first + i, slices.parts());
        }
        if (stage_.kind == StageKind::head) end_head(epilogue_warp);
        if (self_.panels && stage_.kind == StageKind::down) self_.arrive(epilogue_warp, place_);
    }

  private:
    struct Task {
        int sequence, pair;
        bool active;
        bool running;
        std::uint32_t extra;  // the residual's pair
        float2 angle;
        float2 value;
    };

    __device__ void tile(int tile, int count, int parts) {
        const int batch = self_.shape().batch;
        Task tasks[kLaneTasks];
#pragma unroll
        for (int t = 0; t < kLaneTasks; ++t) {
            Task& task = tasks[t];
            task.sequence = 4 * t + self_.lane / kPairs;
            task.pair = self_.lane % kPairs;
            task.active = task.sequence < batch;
            task.running = step_.running(task.sequence);
            if (4 * t < batch) fetch(task, tile);  // while the consumers still multiply
        }
        const int entry = count % self_.layout().part_entries, round = count / self_.layout().part_entries;
        self_.watch.wait_barrier(place_, Awaited::parts, &self_.state.part_full[entry],
                                 static_cast<std::uint32_t>(round & 1));
        self_.stamp(place_, Stamp::ready);
#pragma unroll
        for (int t = 0; t < kLaneTasks; ++t)
            if (tasks[t].active) add_parts(tasks[t], entry, parts);
        __syncwarp();
        if (self_.lane == 0)
            ptx::store_shared_release(ptx::shared_address(&self_.state.parts_read[count % kEpilogueWarps]),
                                      static_cast<std::uint32_t>(count / kEpilogueWarps + 1));
#pragma unroll
        for (int t = 0; t < kLaneTasks; ++t)
            if (4 * t < batch) finish(tasks[t], tile);
    }

    /// What the task needs besides the sums.
    __device__ void fetch(Task& task, int tile) {
        const int column = tile * kTileRows + 2 * task.pair;
        const Shape& shape = self_.shape();
        if (stage_.kind == StageKind::qkv) {
            const int position = max(self_.planned(min(task.sequence, shape.batch - 1), step_.number) - 1, 0);
            const bool rotated = column < shape.q_columns() + shape.kv_columns();
            const std::int64_t at = std::int64_t{position} * shape.head_dim + column % shape.head_dim;
            task.angle = rotated ? __ldg(reinterpret_cast<const float2*>(self_.operands().rope + at)) : float2{1, 0};
        }
        if (stage_.kind != StageKind::attn_out && stage_.kind != StageKind::down) return;
        if (stage_.embedded) {
            const int token = step_.token(task.sequence);
            task.extra = load_pair(self_.operands().table + token * self_.operands().table_ld + column);
            return;
        }
        // x as attn_out finds it comes from the layer before, three stages ago; as down finds it, from attn_out.
        const bool first = stage_.kind == StageKind::attn_out;
        const std::uint32_t epoch = place_.epoch - (first ? 3 : 2);
        const std::uint64_t* words = self_.words(first ? self_.arguments.exchange.x : self_.arguments.exchange.middle) +
                                     (std::int64_t{task.sequence} * shape.width + column) / 2;
        std::uint64_t word = 0;
        self_.watch.wait_or_exit(place_, Awaited::residual, [&] {
            if (task.active) word = ptx::load_word(words);
            return !task.active || has_epoch(word, epoch);
        });
        task.extra = content_of(word);
        __syncwarp();
    }

    __device__ void add_parts(Task& task, int entry, int parts) const {
        const int batch = self_.shape().batch;
        float2 sum{0, 0};
        float square = 0;
        for (int i = 0; i < parts; ++i) {
            const float* part = self_.part(entry, i);
            sum.x += part[task.sequence * kTileRows + 2 * task.pair];
            sum.y += part[task.sequence * kTileRows + 2 * task.pair + 1];
            square += part[kTileRows * batch + task.sequence];
        }
        if (has_norm(stage_.kind)) {
            const float rstd = 1.0f / sqrtf(square / static_cast<float>(stage_.columns) + self_.operands().eps);
            sum.x *= rstd;
            sum.y *= rstd;
        }
        task.value = sum;
    }

    /// All lanes come here; those whose task is not active do nothing.
    __device__ void finish(const Task& task, int tile) {
        const Shape& shape = self_.shape();
        const Exchange& exchange = self_.arguments.exchange;
        const int column = tile * kTileRows + 2 * task.pair;
        switch (stage_.kind) {
            case StageKind::qkv: {
                const Pair<float> z = rotate_pair(Pair<float>{task.value.x, task.value.y}, task.angle.x, task.angle.y);
                const std::uint32_t pair = pack_bf16(z.first, z.second);
                store_key_value(task, column, pair);
                return publish(task, exchange.qkv, shape.qkv_columns(), column, pair);
            }
            case StageKind::attn_out:
            case StageKind::down: {
                const float2 old = unpack_bf16(task.extra);
                const std::uint32_t pair = pack_bf16(task.value.x + old.x, task.value.y + old.y);
                const bool first = stage_.kind == StageKind::attn_out;
                if (self_.panels) store_in_panel(task, column, pair);
                return publish(task, first ? exchange.middle : exchange.x, shape.width, column, pair);
            }
            case StageKind::gate_up: {
                const float2 z = unpack_bf16(pack_bf16(task.value.x, task.value.y));
                const float y = z.x * sigmoid_approximate(z.x) * z.y;
                const float next = __shfl_down_sync(kAllLanes, y, 1);
                Task even = task;
                even.active = task.active && task.pair % 2 == 0;
                if (self_.panels) return store_in_panel(even, column / 2, pack_bf16(y, next));
                return publish(even, exchange.y, shape.feed_forward, column / 2, pack_bf16(y, next));
            }
            default: return keep_logits(task, column);
        }
    }

    __device__ bool lost() const { return self_.arguments.lost_stage == index_ && place_.tile == 0; }

    __device__ void publish(const Task& task, std::int64_t words, int width, int column, std::uint32_t pair) const {
        if (!task.active || lost()) return;
        ptx::store_word(self_.words(words) + (std::int64_t{task.sequence} * width + column) / 2,
                        word_of(pair, place_.epoch));
    }

    __device__ void begin_panels() {
        const Exchange& exchange = self_.arguments.exchange;
        const Shape& shape = self_.shape();
        switch (stage_.kind) {
            case StageKind::attn_out: panels_ = {self_, place_, exchange.middle_panels, shape.width}; break;
            case StageKind::gate_up: panels_ = {self_, place_, exchange.y_panels, shape.feed_forward}; break;
            case StageKind::down: panels_ = {self_, place_, exchange.x_panels, shape.width}; break;
            default: break;  // no product reads its results
        }
    }
    __device__ void store_in_panel(const Task& task, int column, std::uint32_t pair) const {
        if (task.active && !lost()) panels_.store(task.sequence, column, pair);
    }

    /// The newest key or value to its place in the cache.
    __device__ void store_key_value(const Task& task, int column, std::uint32_t pair) const {
        const Shape& shape = self_.shape();
        int from_keys = column - shape.q_columns();
        if (!task.active || !task.running || from_keys < 0) return;
        Bf16* cache = stage_.keys;
        if (from_keys >= shape.kv_columns()) {
            from_keys -= shape.kv_columns();
            cache = stage_.values;
        }
        const int head = from_keys / shape.head_dim;
        const std::int64_t row = (std::int64_t{task.sequence} * shape.kv_heads + head) * shape.context +
                                 self_.planned(task.sequence, step_.number) - 1;
        *reinterpret_cast<std::uint32_t*>(cache + row * shape.head_dim + from_keys % shape.head_dim) = pair;
    }

    /// What a lane keeps of the head for each of its tasks' sequences.
    struct LaneHead {
        BestLogit best;
        sampling::Rules rules;
    };
    /// fn(LaneHead, first sequence of the task's four). Written out, so that both stay in registers.
    template <class Fn>
    __device__ __forceinline__ void each_head(const Fn& fn) {
        static_assert(kLaneTasks == 2);
        fn(first_head_, 0);
        fn(second_head_, 4);
    }

    __device__ void begin_head() {
        each_head([&](LaneHead& head, int base) {
            const int sequence = min(base + self_.lane / kPairs, self_.shape().batch - 1);
            head.rules = sampling::rules_of(self_.operands().choice.options[sequence]);
        });
    }

    __device__ void keep_logits(const Task& task, int column) {
        if (!task.active) return;
        const Operands& operands = self_.operands();
        const std::uint32_t pair = pack_bf16(task.value.x, task.value.y);
        *reinterpret_cast<std::uint32_t*>(operands.logits + task.sequence * operands.logits_ld + column) = pair;
        const float2 logits = unpack_bf16(pair);
        const std::int32_t* seen = operands.choice.seen;
        std::uint32_t bits = 0;  // of both: an even column and the next lie in one word
        if (seen != nullptr && column < operands.shape.vocab)
            bits = static_cast<std::uint32_t>(seen[task.sequence * operands.choice.seen_ld + column / 32]) >>
                   (column % 32);
        each_head([&](LaneHead& head, int base) {
            if (task.sequence / 4 * 4 != base) return;
            if (column < operands.shape.vocab) head.best.add(logits.x, column, (bits & 1) != 0, head.rules);
            if (column + 1 < operands.shape.vocab) head.best.add(logits.y, column + 1, (bits & 2) != 0, head.rules);
        });
    }

    /// Closes the step for this warp: what it has written is there for whoever sees its words. Every epilogue warp of
    /// every SM does so, with logits or without.
    __device__ void end_head(int epilogue_warp) {
        __syncwarp();
        ptx::fence_gpu();
        ptx::fence_async();
        __syncwarp();
        const int lane = self_.lane % kPairs;
        each_head([&](LaneHead& head, int base) {
#pragma unroll
            for (int lanes = 1; lanes < kPairs; lanes *= 2) head.best.join_lanes(lanes);
            const int sequence = base + self_.lane / kPairs;
            if (sequence >= self_.shape().batch || lane >= 4) return;
            const auto low = static_cast<std::uint32_t>(lane == 1 ? head.best.best : 0);
            const auto high = static_cast<std::uint32_t>(head.best.best >> 32);
            const std::uint32_t content = lane == 0   ? high
                                          : lane == 2 ? static_cast<std::uint32_t>(head.best.bad)
                                                      : low;
            const std::int64_t source =
                (std::int64_t{self_.sm} * kEpilogueWarps + epilogue_warp) * self_.shape().batch + sequence;
            ptx::store_word(self_.words(self_.arguments.exchange.best) + 4 * source + lane,
                            word_of(content, place_.epoch));
        });
        __syncwarp();
    }

    const Self self_;
    const Stage& stage_;
    const Step step_;
    int index_;
    Place place_;
    PanelOutput panels_;
    LaneHead first_head_, second_head_;
};

}  // namespace coda::hopper::decode
