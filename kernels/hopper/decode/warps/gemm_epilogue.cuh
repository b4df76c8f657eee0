// The epilogue of a GEMM's tile: an epilogue warp reduces the consumers' partials in order and applies the op's
// epilogue. Device.
//
// A tile has 16 rows: 8 pairs. A pair is what RoPE rotates, SwiGLU joins and a word holds. A lane takes one pair of one
// sequence, from nine sequences on of two. Up to four sequences the epilogue warps take tiles in turn. From five on
// both take every tile, each for some of the sequences (splits_tiles), since the next op waits for all results.
#pragma once

#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/decode/exchange/lamport_output.cuh"
#include "kernels/hopper/decode/warps/head_norms.cuh"
#include "kernels/hopper/decode/warps/rotate.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/math/sampling.h"

namespace coda::hopper::decode {

inline constexpr int kTilePairs = kTileRows / 2;

__device__ __forceinline__ std::uint32_t load_pair(const Bf16* address) {
    return __ldg(reinterpret_cast<const std::uint32_t*>(address));
}

__device__ __forceinline__ float2 load_floats(const float* address) {
    return __ldg(reinterpret_cast<const float2*>(address));
}

/// The largest logit of a sequence that a lane has seen: its key in the high bits and the complement of its id in the
/// low bits, so that of equal logits the lowest id wins. `bad`: the lowest id of a logit that is not finite.
struct BestLogit {
    std::uint64_t best = 0;
    int bad = INT_MAX;

    __device__ void add(float logit, int id, bool seen, const sampling::Rules& rules) {
        if (!isfinite(logit)) bad = min(bad, id);
        const std::uint32_t key = sampling::key_of(sampling::penalised(logit, seen, rules));
        best = max(best, std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(id));
    }
    __device__ void reduce_lanes(int lanes) {
        best = max(best, __shfl_xor_sync(kAllLanes, best, lanes));
        bad = min(bad, __shfl_xor_sync(kAllLanes, bad, lanes));
    }
};

template <int kHeadDim, int kOctets>  // kHeadDim is the model's: nothing is divided by it
class GemmEpilogue {
    static constexpr int kLaneTasks = warp_sequences(kOctets) / kTaskSequences;
    static_assert(kTilePairs * kTaskSequences == 32);

  public:
    __device__ GemmEpilogue(const WarpContext& ctx, const DecodeOp& op, const StepTokens& tokens, const WorkItem& item)
        : ctx_(ctx),
          op_(op),
          tokens_(tokens),
          item_(item),
          first_sequence_(ctx.splits_tiles() ? warp_sequences(kOctets) * (ctx.warp - kConsumerWarps) : 0) {}

    /// done: the SM's tiles of the ops before.
    __device__ void run(int epilogue_warp, int done) {
        const OwnTiles own = ctx_.tiles_of(op_);
        const Slices slices = ctx_.slices(op_.columns);
        if (ctx_.lamport) begin_lamport();
        if (op_.kind == OpKind::head) begin_head();
        for (int i = 0; i < own.number; ++i) {
            if (!ctx_.splits_tiles() && (done + i) % kEpilogueWarps != epilogue_warp) continue;
            item_.tile = own.tile(i);
            tile(own.tile(i), done + i, slices.partials());
        }
        if (op_.kind == OpKind::head) end_head(epilogue_warp);
        if (ctx_.lamport && op_.kind == OpKind::down) ctx_.arrive(epilogue_warp, item_);
    }

  private:
    struct Task {
        int sequence, pair;
        bool active;
        bool running;
        std::uint32_t extra;  // the residual's pair
        float2 angle;
        float2 vector;  // the bias; of qkv it may be the gain of a q or k head
        float2 value;
    };

    __device__ void tile(int tile, int count, int partials) {
        const int batch = ctx_.shape().batch;
        Task tasks[kLaneTasks];
        int lane = ctx_.lane;
        if (kOctets > 1) ptx::hide_origin(lane);  // or registers would keep the tasks' addresses over all tiles
#pragma unroll
        for (int t = 0; t < kLaneTasks; ++t) {
            Task& task = tasks[t];
            task.sequence = first_sequence_ + kTaskSequences * t + lane / kTilePairs;
            task.pair = lane % kTilePairs;
            task.active = task.sequence < batch;
            task.running = tokens_.running(task.sequence);
            if (first_sequence_ + kTaskSequences * t < batch) fetch(task, tile);  // while the consumers still multiply
        }
        const int entry = ctx_.partial_entry(count);
        const bool odd_round = (count & ctx_.layout().partial_entries) != 0;
        ctx_.watchdog.wait_barrier(item_, Awaited::partials, &ctx_.state().partials_full[entry], odd_round ? 1 : 0);
        ctx_.stamp(item_, Stamp::ready);
#pragma unroll
        for (int t = 0; t < kLaneTasks; ++t)
            if (tasks[t].active) reduce_partials(tasks[t], entry, partials, rstd_[t]);
        finish(tasks, tile);
        has_rstd_ = true;
        // Last, as other SMs wait for the results, and a store that releases takes its time.
        __syncwarp();
        if (ctx_.lane == 0)
            ptx::store_shared_release(ptx::shared_address(&ctx_.state().partials_read[ctx_.warp - kConsumerWarps]),
                                      static_cast<std::uint32_t>(count + 1));
    }

    /// What the task needs besides the sums.
    __device__ void fetch(Task& task, int tile) {
        const int column = tile * kTileRows + 2 * task.pair;
        const Shape& shape = ctx_.shape();
        const int layer = item_.op / kLayerOps;
        if (op_.kind == OpKind::qkv) {
            const int position = max(ctx_.planned(min(task.sequence, shape.batch - 1), tokens_.step) - 1, 0);
            const bool rotated = column < shape.q_columns() + shape.kv_columns();
            const std::int64_t at = std::int64_t{position} * kHeadDim + column % kHeadDim;
            task.angle = rotated ? load_floats(ctx_.operands().rope + at) : float2{1, 0};
            if (ctx_.extended && shape.bias) task.vector = load_floats(ctx_.operands().bias.of(layer) + column);
            if (ctx_.extended && shape.head_norms) {
                const float* gain = ctx_.operands().gain.of(layer) + (column < shape.q_columns() ? 0 : kHeadDim);
                task.vector = rotated ? load_floats(gain + column % kHeadDim) : float2{1, 1};
            }
        }
        if (op_.kind != OpKind::attn_out && op_.kind != OpKind::down) return;
        const bool first = op_.kind == OpKind::attn_out;
        if (ctx_.extended && first && shape.out_bias)
            task.vector = load_floats(ctx_.operands().out_bias.of(layer) + column);
        if (op_.embedded) {
            const int token = tokens_.of(task.sequence);
            task.extra = load_pair(ctx_.operands().table + token * ctx_.operands().table_ld + column);
            return;
        }
        // x as attn_out finds it comes from the layer before, three ops ago; as down finds it, from attn_out.
        const std::uint32_t epoch = item_.epoch - (first ? 3 : 2);
        const std::uint64_t* words = ctx_.words(first ? ctx_.arguments.exchange.x : ctx_.arguments.exchange.middle) +
                                     (std::int64_t{task.sequence} * shape.width + column) / 2;
        std::uint64_t word = 0;
        ctx_.watchdog.wait_together(item_, Awaited::residual, [&] {
            if (task.active) word = ptx::load_ll(words);
            return !task.active || has_epoch(word, epoch);
        });
        task.extra = ll_data(word);
        __syncwarp();
    }

    /// rstd: of the task's sequence, which all tiles of an op share; the first one sets it.
    __device__ void reduce_partials(Task& task, int entry, int partials, float& rstd) const {
        float2 sum{0, 0}, parts[kConsumerWarps] = {};
#pragma unroll
        for (int i = 0; i < kConsumerWarps; ++i) {  // all loads on their way at a time
            if (i >= partials) continue;
            parts[i] =
                *reinterpret_cast<const float2*>(ctx_.partial(entry, i) + task.sequence * kTileRows + 2 * task.pair);
        }
#pragma unroll
        for (const float2& part : parts) {
            sum.x += part.x;
            sum.y += part.y;
        }
        if (has_norm(op_.kind)) {
            if (!has_rstd_) rstd = rstd_of(task.sequence, entry, partials);
            sum.x *= rstd;
            sum.y *= rstd;
        }
        task.value = sum;
    }
    __device__ float rstd_of(int sequence, int entry, int partials) const {
        float square = 0, parts[kConsumerWarps] = {};
#pragma unroll
        for (int i = 0; i < kConsumerWarps; ++i)
            if (i < partials) parts[i] = ctx_.partial(entry, i)[kTileRows * ctx_.shape().batch + sequence];
#pragma unroll
        for (const float part : parts) square += part;
        return 1.0f / sqrtf(square / static_cast<float>(op_.columns) + ctx_.operands().eps);
    }

    /// All lanes come here; those whose task is not active store nothing. A case interleaves a lane's tasks, so that an
    /// instruction of one does not wait for the one before it.
    __device__ void finish(const Task (&tasks)[kLaneTasks], int tile) {
        const Shape& shape = ctx_.shape();
        const Exchange& exchange = ctx_.arguments.exchange;
        const int column = tile * kTileRows + 2 * tasks[0].pair;
        switch (op_.kind) {
            case OpKind::qkv: {
                std::uint32_t pairs[kLaneTasks];
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) {
                    const Task& task = tasks[t];
                    if (ctx_.extended && shape.head_norms) {
                        finish_with_norm(ctx_.state().arguments, item_.epoch, task.sequence, task.active, column,
                                         task.value, task.vector, task.angle);
                        continue;
                    }
                    Pair<float> z{task.value.x, task.value.y};
                    if (ctx_.extended && shape.bias)
                        z = {__fadd_rn(z.first, task.vector.x), __fadd_rn(z.second, task.vector.y)};
                    z = rotate(z, task.angle);
                    pairs[t] = pack_bf16(z.first, z.second);
                }
                if (ctx_.extended && shape.head_norms) return;
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t)  // first: attention waits for it
                    publish(tasks[t], exchange.qkv, shape.qkv_columns(), column, pairs[t]);
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) store_key_value(tasks[t], column, pairs[t]);
                return;
            }
            case OpKind::attn_out:
            case OpKind::down: {
                const bool first = op_.kind == OpKind::attn_out;
                std::uint32_t pairs[kLaneTasks];
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) {
                    const float2 old = unpack_bf16(tasks[t].extra);
                    float2 x = tasks[t].value;
                    if (ctx_.extended && first && shape.out_bias)
                        x = {__fadd_rn(x.x, tasks[t].vector.x), __fadd_rn(x.y, tasks[t].vector.y)};
                    pairs[t] = pack_bf16(x.x + old.x, x.y + old.y);
                }
                if (ctx_.lamport)
#pragma unroll
                    for (int t = 0; t < kLaneTasks; ++t) store_lamport(tasks[t], column, pairs[t]);
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t)
                    publish(tasks[t], first ? exchange.middle : exchange.x, shape.width, column, pairs[t]);
                return;
            }
            case OpKind::gate_up: {
                float y[kLaneTasks], next[kLaneTasks];
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) {
                    const float2 z = unpack_bf16(pack_bf16(tasks[t].value.x, tasks[t].value.y));
                    y[t] = z.x * sigmoid_approximate(z.x) * z.y;
                }
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) next[t] = __shfl_down_sync(kAllLanes, y[t], 1);
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) {
                    Task even = tasks[t];
                    even.active = even.active && even.pair % 2 == 0;
                    if (ctx_.lamport)
                        store_lamport(even, column / 2, pack_bf16(y[t], next[t]));
                    else
                        publish(even, exchange.y, shape.feed_forward, column / 2, pack_bf16(y[t], next[t]));
                }
                return;
            }
            default:
#pragma unroll
                for (int t = 0; t < kLaneTasks; ++t) keep_logits(tasks[t], column);
        }
    }

    __device__ void publish(const Task& task, std::int64_t words, int width, int column, std::uint32_t pair) const {
        if (!task.active) return;
        ptx::store_ll(ctx_.words(words) + (std::int64_t{task.sequence} * width + column) / 2,
                      ll_word(pair, item_.epoch));
    }

    __device__ void begin_lamport() {
        const Exchange& exchange = ctx_.arguments.exchange;
        const Shape& shape = ctx_.shape();
        switch (op_.kind) {
            case OpKind::attn_out: lamport_ = {ctx_, item_, exchange.middle_lamport, shape.width}; break;
            case OpKind::gate_up: lamport_ = {ctx_, item_, exchange.y_lamport, shape.feed_forward}; break;
            case OpKind::down: lamport_ = {ctx_, item_, exchange.x_lamport, shape.width}; break;
            default: break;  // no GEMM reads its results
        }
    }
    __device__ void store_lamport(const Task& task, int column, std::uint32_t pair) const {
        if (task.active) lamport_.store(task.sequence, column, pair);
    }

    /// Stores the newest key or value in the cache.
    __device__ void store_key_value(const Task& task, int column, std::uint32_t pair) const {
        const Shape& shape = ctx_.shape();
        int from_keys = column - shape.q_columns();
        if (!task.active || !task.running || from_keys < 0) return;
        Bf16* cache = op_.keys;
        if (from_keys >= shape.kv_columns()) {
            from_keys -= shape.kv_columns();
            cache = op_.values;
        }
        const int head = from_keys / kHeadDim;
        const std::int64_t row =
            (std::int64_t{ctx_.cache_of(op_, task.sequence)} * shape.kv_heads + head) * shape.context +
            ctx_.planned(task.sequence, tokens_.step) - 1;
        *reinterpret_cast<std::uint32_t*>(cache + row * kHeadDim + from_keys % kHeadDim) = pair;
    }

    /// What a lane keeps of the head for each of its tasks' sequences.
    struct LaneHead {
        BestLogit best;
        sampling::Rules rules;
    };
    /// fn(LaneHead, first sequence of the task's four).
    template <class Fn>
    __device__ __forceinline__ void each_head(const Fn& fn) {
#pragma unroll
        for (int t = 0; t < kLaneTasks; ++t) fn(heads_[t], first_sequence_ + kTaskSequences * t);
    }

    __device__ void begin_head() {
        each_head([&](LaneHead& head, int base) {
            const int sequence = min(base + ctx_.lane / kTilePairs, ctx_.shape().batch - 1);
            head.rules = sampling::rules_of(ctx_.operands().choice.options[sequence]);
        });
    }

    __device__ void keep_logits(const Task& task, int column) {
        if (!task.active) return;
        const Operands& operands = ctx_.operands();
        const std::uint32_t pair = pack_bf16(task.value.x, task.value.y);
        *reinterpret_cast<std::uint32_t*>(operands.logits + task.sequence * operands.logits_ld + column) = pair;
        const float2 logits = unpack_bf16(pair);
        const std::int32_t* seen = operands.choice.seen;
        std::uint32_t bits = 0;  // of both: an even column and the next lie in one word
        if (seen != nullptr && column < operands.shape.vocab)
            bits = static_cast<std::uint32_t>(seen[task.sequence * operands.choice.seen_ld + column / 32]) >>
                   (column % 32);
        each_head([&](LaneHead& head, int base) {
            if (task.sequence / kTaskSequences * kTaskSequences != base) return;
            if (column < operands.shape.vocab) head.best.add(logits.x, column, (bits & 1) != 0, head.rules);
            if (column + 1 < operands.shape.vocab) head.best.add(logits.y, column + 1, (bits & 2) != 0, head.rules);
        });
    }

    /// Ends the step for this warp: whoever sees its words also sees what it has written. Every epilogue warp of
    /// every SM does so, with logits or without. Where a warp has only some of the sequences, only the tokens
    /// of all of them show what all warps have written.
    __device__ void end_head(int epilogue_warp) {
        __syncwarp();
        ptx::fence_gpu();
        ptx::fence_async();
        __syncwarp();
        const int lane = ctx_.lane % kTilePairs;
        each_head([&](LaneHead& head, int base) {
#pragma unroll
            for (int lanes = 1; lanes < kTilePairs; lanes *= 2) head.best.reduce_lanes(lanes);
            const int sequence = base + ctx_.lane / kTilePairs;
            // Where the other warp has none of this sequence's logits, half of the lanes say so in its place.
            constexpr int kWords = 4;
            if (sequence >= ctx_.shape().batch || lane >= (ctx_.splits_tiles() ? 2 : 1) * kWords) return;
            if (lane >= kWords) head.best = {};
            const int word = lane % kWords, warp = epilogue_warp ^ lane / kWords;
            const auto low = static_cast<std::uint32_t>(word == 1 ? head.best.best : 0);
            const auto high = static_cast<std::uint32_t>(head.best.best >> 32);
            const std::uint32_t content = word == 0   ? high
                                          : word == 2 ? static_cast<std::uint32_t>(head.best.bad)
                                                      : low;
            const std::int64_t source = (std::int64_t{ctx_.sm} * kEpilogueWarps + warp) * ctx_.shape().batch + sequence;
            ptx::store_ll(ctx_.words(ctx_.arguments.exchange.best) + kWords * source + word,
                          ll_word(content, item_.epoch));
        });
        __syncwarp();
    }

    const WarpContext ctx_;
    const DecodeOp& op_;
    const StepTokens tokens_;
    WorkItem item_;
    int first_sequence_;
    LamportOutput lamport_;
    float rstd_[kLaneTasks] = {};
    bool has_rstd_ = false;
    LaneHead heads_[kLaneTasks];
};

}  // namespace coda::hopper::decode
