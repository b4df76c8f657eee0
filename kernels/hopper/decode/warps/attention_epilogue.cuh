// The epilogue of attention: an epilogue warp reduces the partials of a tile's warps in order, and for longer sequences
// the splits of a query head in order. Device.
//
// All terms of a sum are loaded at the same time. The next op waits for these sums, so what counts is how many loads
// depend on one another.
#pragma once

#include "kernels/hopper/decode/exchange/arrivals.cuh"
#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/decode/exchange/lamport_output.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper::decode {

template <int kHeadDim>
class AttentionEpilogue {
    static constexpr int kSplitWords = kHeadDim + 2, kFours = kHeadDim / 4;  // fours of columns of a head

  public:
    __device__ AttentionEpilogue(const WarpContext& ctx, int epilogue_warp) : ctx_(ctx), warp_(epilogue_warp) {}

    __device__ void run(const DecodeOp& op, int step, WorkItem item) {
        item_ = item;
        if (ctx_.lamport) {
            lamport_ = {ctx_, item, ctx_.arguments.exchange.o_lamport, ctx_.shape().q_columns()};
            if (!op.embedded) await_arrivals(ctx_, item_);
        }
        const auto tiles = ctx_.attention_tiles(step, kHeadDim);
        const OwnTiles own = own_tiles(tiles.number(), op.rotation, ctx_.sm, ctx_.grid());
        for (int index = 0; index < own.number; ++index) {
            item_.tile = own.tile(index);
            join_warps(tiles.tile(own.tile(index)));
        }
        reduce_splits(step);
    }

  private:
    __device__ std::uint64_t* o_ll(int sequence, int column) const {
        return ctx_.words(ctx_.arguments.exchange.o) +
               (std::int64_t{sequence} * ctx_.shape().heads * kHeadDim + column) / 2;
    }
    __device__ std::uint64_t* split_ll(int sequence, int head, int split) const {
        const std::int64_t index = (std::int64_t{sequence} * ctx_.shape().heads + head) * kMaxSplits + split;
        return ctx_.words(ctx_.arguments.exchange.splits) + index * kSplitWords;
    }
    __device__ ptx::LlPair ll_pair(float first, float second) const {
        return {ll_word(__float_as_uint(first), item_.epoch), ll_word(__float_as_uint(second), item_.epoch)};
    }

    /// In both epilogue warps: a lane takes four columns of a head at a time, Σ 2^(m_i - max m) x_i over the partials
    /// i.
    __device__ void join_warps(const AttentionTile& tile) const {
        std::uint32_t& tiles_seen = ctx_.state().attention_tiles[ctx_.warp];
        const std::uint32_t before = tiles_seen;
        ctx_.watchdog.wait_barrier(item_, Awaited::partials, &ctx_.state().attention_full, before & 1);
        ctx_.stamp(item_, Stamp::ready);
        const int partials = min(tile.blocks, kConsumerWarps), group = ctx_.shape().group();
        for (int four = ctx_.lane + 32 * warp_; four < group * kFours; four += 32 * kEpilogueWarps) {
            const int g = four / kFours, column = four % kFours * 4;
            float4 own[kConsumerWarps] = {};
            float own_maximum[kConsumerWarps] = {}, own_total[kConsumerWarps] = {}, maximum = -INFINITY;
#pragma unroll
            for (int i = 0; i < kConsumerWarps; ++i) {
                if (i >= partials) continue;
                const float* partial = ctx_.attention_partial(i);
                own[i] = *reinterpret_cast<const float4*>(partial + 4 * four);
                own_maximum[i] = partial[group * kHeadDim + g];
                own_total[i] = partial[group * kHeadDim + kMaxGroup + g];
                maximum = fmaxf(maximum, own_maximum[i]);
            }
            float4 sum{};
            float total = 0;
#pragma unroll
            for (int i = 0; i < kConsumerWarps; ++i) {
                if (i >= partials) continue;
                const float weight = ptx::exp2_approximate(own_maximum[i] - maximum);
                sum.x += weight * own[i].x;
                sum.y += weight * own[i].y;
                sum.z += weight * own[i].z;
                sum.w += weight * own[i].w;
                total += weight * own_total[i];
            }
            const int head = tile.kv_head * group + g;
            if (tile.splits.number == 1) {
                const float inverse = 1.0f / total;
                const uint2 o{pack_bf16(sum.x * inverse, sum.y * inverse), pack_bf16(sum.z * inverse, sum.w * inverse)};
                if (ctx_.lamport)
                    lamport_.store(tile.sequence, head * kHeadDim + column, o);
                else
                    ptx::store_ll_pair(o_ll(tile.sequence, head * kHeadDim + column),
                                       {ll_word(o.x, item_.epoch), ll_word(o.y, item_.epoch)});
                continue;
            }
            std::uint64_t* words = split_ll(tile.sequence, head, tile.split);
            ptx::store_ll_pair(words + column, ll_pair(sum.x, sum.y));
            ptx::store_ll_pair(words + column + 2, ll_pair(sum.z, sum.w));
            if (column == 0) ptx::store_ll_pair(words + kHeadDim, ll_pair(maximum, total));
        }
        __syncwarp();
        if (ctx_.lane == 0) {
            tiles_seen = before + 1;  // all lanes have read it
            ptx::mbarrier_arrive(ptx::shared_address(&ctx_.state().attention_empty));
        }
        __syncwarp();
    }

    __device__ void reduce_splits(int step) {
        const ReduceTasks tasks{ctx_.shape().heads, kHeadDim};
        const OwnReductions own = own_reductions(ctx_.sm, warp_, ctx_.grid());
        const int number = tasks.number(ctx_.shape().batch);
        for (int index = own.first; index < number; index += own.step) {
            const ReduceTask task = tasks.task(index);
            const Splits splits = splits_of(ctx_.visible(ctx_.planned(task.sequence, step)), kHeadDim);
            if (splits.number <= 1) continue;
            item_.tile = index;
            reduce_splits(task, splits.number);
        }
    }

    /// A lane has a column of every split; and of split `lane` the maximum and the total.
    __device__ void reduce_splits(const ReduceTask& task, int number) const {
        static_assert(kReducedColumns == 32 && kMaxSplits <= 32);
        const std::uint64_t* first = split_ll(task.sequence, task.head, 0);
        std::uint64_t words[kMaxSplits] = {};
        ptx::LlPair statistics = ll_pair_without_data(item_.epoch);
        ctx_.watchdog.wait_together(item_, Awaited::splits, [&] {
#pragma unroll
            for (int i = 0; i < kMaxSplits; ++i)
                if (i < number) words[i] = ptx::load_ll(first + i * kSplitWords + task.column + ctx_.lane);
            ptx::load_ll_pair(statistics, first + ctx_.lane * kSplitWords + kHeadDim, ctx_.lane < number);
            bool all = missing(statistics, item_.epoch) == 0;
#pragma unroll
            for (int i = 0; i < kMaxSplits; ++i)
                if (i < number) all = all && has_epoch(words[i], item_.epoch);
            return all;
        });
        __syncwarp();
        const bool has_split = ctx_.lane < number;
        const float own_maximum = has_split ? __uint_as_float(ll_data(statistics.first)) : -INFINITY;
        float maximum = own_maximum;
        maximum = warp_max(maximum);
        const float own_weight = ptx::exp2_approximate(own_maximum - maximum);
        const float own_total = has_split ? __uint_as_float(ll_data(statistics.second)) : 0;
        float sum = 0, total = 0;
#pragma unroll
        for (int i = 0; i < kMaxSplits; ++i) {
            if (i >= number) continue;
            const float weight = __shfl_sync(kAllLanes, own_weight, i);
            total += weight * __shfl_sync(kAllLanes, own_total, i);
            sum += weight * __uint_as_float(ll_data(words[i]));
        }
        const float result = sum / total, next = __shfl_down_sync(kAllLanes, result, 1);
        if (ctx_.lane % 2 != 0) return;
        const int column = task.head * kHeadDim + task.column + ctx_.lane;
        const std::uint32_t o = pack_bf16(result, next);
        if (ctx_.lamport)
            lamport_.store(task.sequence, column, o);
        else
            ptx::store_ll(o_ll(task.sequence, column), ll_word(o, item_.epoch));
    }

    const WarpContext& ctx_;
    int warp_;
    WorkItem item_;
    LamportOutput lamport_;
};

template <int kHeadDim>
__device__ __forceinline__ void run_attention_epilogue(WarpContext ctx, const DecodeOp& op, int epilogue_warp, int step,
                                                       WorkItem item) {
    AttentionEpilogue<kHeadDim>(ctx, epilogue_warp).run(op, step, item);
}

}  // namespace coda::hopper::decode
