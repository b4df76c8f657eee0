// The end of attention in an epilogue warp: the parts of a unit's warps, in order; then, of longer sequences, the
// splits of a query head, in order. Device.
//
// All that a sum is made of is loaded at once: the stage after waits for these sums, so what counts is how many loads
// follow one another.
#pragma once

#include "kernels/hopper/decode/exchange/arrivals.cuh"
#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/decode/exchange/panel_output.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper::decode {

template <int kHeadDim>
class AttentionEpilogue {
    static constexpr int kSplitWords = kHeadDim + 2, kFours = kHeadDim / 4;  // fours of columns of a head

  public:
    __device__ AttentionEpilogue(const Self& self, int epilogue_warp) : self_(self), warp_(epilogue_warp) {}

    /// `units_done` counts the SM's units over all stages: before this one, and returned after it.
    __device__ int run(const Stage& stage, int token, Place place, int units_done, bool lost) {
        place_ = place;
        lost_ = lost;
        if (self_.panels) {
            panels_ = {self_, place, self_.arguments.exchange.o_panels, self_.shape().q_columns()};
            if (!stage.embedded) await_arrivals(self_, place_);
        }
        const auto units = self_.attention_units(token, kHeadDim);
        const OwnTiles own = own_tiles(units.number(), stage.rotation, self_.sm, self_.grid);
        for (int index = 0; index < own.number; ++index, ++units_done) {
            place_.tile = own.tile(index);
            join_warps(units.unit(own.tile(index)), units_done);
        }
        join_splits(token);
        return units_done;
    }

  private:
    __device__ std::uint64_t* o_words(int sequence, int column) const {
        return self_.words(self_.arguments.exchange.o) +
               (std::int64_t{sequence} * self_.shape().heads * kHeadDim + column) / 2;
    }
    __device__ std::uint64_t* split_words(int sequence, int head, int split) const {
        const std::int64_t index = (std::int64_t{sequence} * self_.shape().heads + head) * kMaxSplits + split;
        return self_.words(self_.arguments.exchange.splits) + index * kSplitWords;
    }
    __device__ ptx::Words words_of(float first, float second) const {
        return {word_of(__float_as_uint(first), place_.epoch), word_of(__float_as_uint(second), place_.epoch)};
    }

    /// Both epilogue warps: a lane takes four columns of a head at a time, Σ 2^(m_i - max m) x_i over the parts i.
    __device__ void join_warps(const AttentionUnit& unit, int units_done) const {
        self_.watch.wait_barrier(place_, Awaited::parts, &self_.state.attention_full,
                                 static_cast<std::uint32_t>(units_done & 1));
        self_.stamp(place_, Stamp::ready);
        const int parts = min(unit.blocks, kConsumerWarps), group = self_.shape().group();
        const float* first = self_.attention_part(0);
        for (int four = self_.lane + 32 * warp_; four < group * kFours; four += 32 * kEpilogueWarps) {
            const int g = four / kFours, column = four % kFours * 4;
            float4 own[kConsumerWarps] = {};
            float own_maximum[kConsumerWarps] = {}, own_total[kConsumerWarps] = {}, maximum = -INFINITY;
#pragma unroll
            for (int i = 0; i < kConsumerWarps; ++i) {
                if (i >= parts) continue;
                const float* part = first + i * (group * kHeadDim + 2 * kMaxGroup);
                own[i] = *reinterpret_cast<const float4*>(part + 4 * four);
                own_maximum[i] = part[group * kHeadDim + g];
                own_total[i] = part[group * kHeadDim + kMaxGroup + g];
                maximum = fmaxf(maximum, own_maximum[i]);
            }
            float4 sum{};
            float total = 0;
#pragma unroll
            for (int i = 0; i < kConsumerWarps; ++i) {
                if (i >= parts) continue;
                const float weight = ptx::exp2_approximate(own_maximum[i] - maximum);
                sum.x += weight * own[i].x;
                sum.y += weight * own[i].y;
                sum.z += weight * own[i].z;
                sum.w += weight * own[i].w;
                total += weight * own_total[i];
            }
            if (lost_ && place_.tile == 0) continue;
            const int head = unit.kv_head * group + g;
            if (unit.splits.number == 1) {
                const float inverse = 1.0f / total;
                const uint2 o{pack_bf16(sum.x * inverse, sum.y * inverse), pack_bf16(sum.z * inverse, sum.w * inverse)};
                if (self_.panels)
                    panels_.store(unit.sequence, head * kHeadDim + column, o);
                else
                    ptx::store_words(o_words(unit.sequence, head * kHeadDim + column),
                                     {word_of(o.x, place_.epoch), word_of(o.y, place_.epoch)});
                continue;
            }
            std::uint64_t* words = split_words(unit.sequence, head, unit.split);
            ptx::store_words(words + column, words_of(sum.x, sum.y));
            ptx::store_words(words + column + 2, words_of(sum.z, sum.w));
            if (column == 0) ptx::store_words(words + kHeadDim, words_of(maximum, total));
        }
        __syncwarp();
        if (self_.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&self_.state.attention_empty));
    }

    __device__ void join_splits(int token) {
        const JoinTasks tasks{self_.shape().heads, kHeadDim};
        const OwnJoins own = own_joins(self_.sm, warp_, self_.grid);
        const int number = tasks.number(self_.shape().batch);
        for (int index = own.first; index < number; index += own.step) {
            const JoinTask task = tasks.task(index);
            const Splits splits = splits_of(self_.planned(task.sequence, token), kHeadDim);
            if (splits.number <= 1) continue;
            place_.tile = index;
            join_splits(task, splits.number);
        }
    }

    /// A lane has a column of every split; and of split `lane` the maximum and the total.
    __device__ void join_splits(const JoinTask& task, int number) const {
        static_assert(kJoinedColumns == 32 && kMaxSplits <= 32);
        const std::uint64_t* first = split_words(task.sequence, task.head, 0);
        std::uint64_t words[kMaxSplits] = {};
        ptx::Words statistics{};
        self_.watch.wait_or_exit(place_, Awaited::splits, [&] {
#pragma unroll
            for (int i = 0; i < kMaxSplits; ++i)
                if (i < number) words[i] = ptx::load_word(first + i * kSplitWords + task.column + self_.lane);
            if (self_.lane < number) statistics = ptx::load_words(first + self_.lane * kSplitWords + kHeadDim);
            bool all = self_.lane >= number || have_epoch(statistics, place_.epoch);
#pragma unroll
            for (int i = 0; i < kMaxSplits; ++i)
                if (i < number) all = all && has_epoch(words[i], place_.epoch);
            return all;
        });
        __syncwarp();
        const bool has_split = self_.lane < number;
        const float own_maximum = has_split ? __uint_as_float(content_of(statistics.first)) : -INFINITY;
        float maximum = own_maximum;
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
            maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, lanes));
        const float own_weight = ptx::exp2_approximate(own_maximum - maximum);
        const float own_total = has_split ? __uint_as_float(content_of(statistics.second)) : 0;
        float sum = 0, total = 0;
#pragma unroll
        for (int i = 0; i < kMaxSplits; ++i) {
            if (i >= number) continue;
            const float weight = __shfl_sync(kAllLanes, own_weight, i);
            total += weight * __shfl_sync(kAllLanes, own_total, i);
            sum += weight * __uint_as_float(content_of(words[i]));
        }
        const float result = sum / total, next = __shfl_down_sync(kAllLanes, result, 1);
        if (self_.lane % 2 != 0) return;
        const int column = task.head * kHeadDim + task.column + self_.lane;
        const std::uint32_t o = pack_bf16(result, next);
        if (self_.panels)
            panels_.store(task.sequence, column, o);
        else
            ptx::store_word(o_words(task.sequence, column), word_of(o, place_.epoch));
    }

    const Self& self_;
    int warp_;
    Place place_;
    bool lost_ = false;
    PanelOutput panels_;
};

template <int kHeadDim>
__device__ __forceinline__ int finish_attention(Self self, const Stage& stage, int epilogue_warp, int token,
                                                Place place, int units_done, bool lost) {
    return AttentionEpilogue<kHeadDim>(self, epilogue_warp).run(stage, token, place, units_done, lost);
}

}  // namespace coda::hopper::decode
