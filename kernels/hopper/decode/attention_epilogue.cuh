// The end of attention in an epilogue warp: the parts of a unit's warps, in order; then, of longer sequences, the
// splits of a query head, in order. Device.
#pragma once

#include "kernels/hopper/decode/input.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper::decode {

/// A weighted sum of parts: Σ 2^(m_i - max m) x_i over the sums and totals of parts i.
template <int kHeadDim>
struct HeadSum {
    static constexpr int kColumns = kHeadDim / 32;  // of a lane: pairs 2 lane, and 64 further on
    float sum[kColumns] = {};
    float total = 0;

    __device__ void add(const float (&part)[kColumns], float part_total, float weight) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sum[j] += weight * part[j];
        total += weight * part_total;
    }
};

template <int kHeadDim>
class AttentionEpilogue {
    static constexpr int kColumns = kHeadDim / 32, kPairs = kColumns / 2, kSplitWords = kHeadDim + 2;

  public:
    __device__ AttentionEpilogue(const Self& self, int epilogue_warp) : self_(self), warp_(epilogue_warp) {}

    /// `units_done` counts the SM's units over all stages: before this one, and returned after it.
    __device__ int run(const Stage& stage, int token, Place place, int units_done, bool lost) {
        place_ = place;
        lost_ = lost;
        const auto units = self_.attention_units(token);
        const OwnTiles own = own_tiles(units.number(), stage.rotation, self_.sm, self_.grid);
        for (int index = 0; index < own.number; ++index, ++units_done) {
            // One warp takes them all: two would lose count of the one barrier's phases.
            if (warp_ != 0) continue;
            place_.tile = own.tile(index);
            join_warps(units.unit(own.tile(index)), units_done);
        }
        join_splits(token);
        return units_done;
    }

  private:
    __device__ void publish_o(int sequence, int head, const HeadSum<kHeadDim>& of) const {
        const float inverse = of.total > 0 ? 1.0f / of.total : 0.0f;
        std::uint64_t* words = self_.words(self_.arguments.exchange.o) +
                               (std::int64_t{sequence} * self_.shape().q_columns() + head * kHeadDim) / 2;
#pragma unroll
        for (int j = 0; j < kPairs; ++j)
            ptx::store_word(words + self_.lane + 32 * j,
                            word_of(pack_bf16(of.sum[2 * j] * inverse, of.sum[2 * j + 1] * inverse), place_.epoch));
    }
    __device__ std::uint64_t* split_words(int sequence, int head, int split) const {
        const std::int64_t index = (std::int64_t{sequence} * self_.shape().heads + head) * kMaxSplits + split;
        return self_.words(self_.arguments.exchange.splits) + index * kSplitWords;
    }
    __device__ void publish_split(int sequence, int head, int split, const HeadSum<kHeadDim>& of, float maximum) const {
        std::uint64_t* words = split_words(sequence, head, split);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
            ptx::store_word(words + 2 * self_.lane + 64 * (j / 2) + j % 2,
                            word_of(__float_as_uint(of.sum[j]), place_.epoch));
        if (self_.lane < 2)
            ptx::store_word(words + kHeadDim + self_.lane,
                            word_of(__float_as_uint(self_.lane == 0 ? maximum : of.total), place_.epoch));
    }

    __device__ void join_warps(const AttentionUnit& unit, int units_done) const {
        self_.watch.wait_barrier(place_, Awaited::parts, &self_.state.attention_full,
                                 static_cast<std::uint32_t>(units_done & 1));
        self_.stamp(place_, Stamp::ready);
        const int parts = min(unit.blocks, kConsumerWarps), group = self_.shape().group();
        for (int g = 0; g < group; ++g) {
            float maximum = -INFINITY;
            for (int i = 0; i < parts; ++i) maximum = fmaxf(maximum, self_.attention_part(i)[group * kHeadDim + g]);
            HeadSum<kHeadDim> of;
            for (int i = 0; i < parts; ++i) {
                const float* part = self_.attention_part(i);
                const float* statistics = part + group * kHeadDim + g;
                float own[kColumns];
#pragma unroll
                for (int j = 0; j < kPairs; ++j) {
                    const auto pair = *reinterpret_cast<const float2*>(part + g * kHeadDim + 2 * self_.lane + 64 * j);
                    own[2 * j] = pair.x;
                    own[2 * j + 1] = pair.y;
                }
                of.add(own, statistics[kMaxGroup], ptx::exp2_approximate(statistics[0] - maximum));
            }
            if (lost_ && place_.tile == 0) continue;
            const int head = unit.kv_head * group + g;
            if (unit.splits.number == 1)
                publish_o(unit.sequence, head, of);
            else
                publish_split(unit.sequence, head, unit.split, of, maximum);
        }
        __syncwarp();
        if (self_.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&self_.state.attention_empty));
    }

    __device__ void join_splits(int token) {
        const Shape& shape = self_.shape();
        for (int b = 0; b < shape.batch; ++b) {
            const int length = self_.planned(b, token);
            const Splits splits = splits_of(length, kHeadDim);
            if (splits.number <= 1) continue;
            for (int head = 0; head < shape.heads; ++head) {
                const CombineOwner owner = combine_owner(b, shape.heads, head, self_.grid);
                if (owner.sm != self_.sm || owner.epilogue_warp != warp_) continue;
                place_.tile = b * shape.heads + head;
                publish_o(b, head, sum_of_splits(b, head, splits.number));
            }
        }
    }

    /// The splits with a running maximum, four at a time on their way.
    __device__ HeadSum<kHeadDim> sum_of_splits(int sequence, int head, int number) const {
        constexpr int kAtOnce = 4;
        HeadSum<kHeadDim> of;
        float maximum = -INFINITY;
        for (int base = 0; base < number; base += kAtOnce) {
            ptx::Words words[kAtOnce][kPairs], statistics[kAtOnce];
            self_.watch.wait_or_exit(place_, Awaited::splits, [&] {
                bool all = true;
#pragma unroll
                for (int u = 0; u < kAtOnce; ++u) {
                    const std::uint64_t* from = split_words(sequence, head, min(base + u, number - 1));
#pragma unroll
                    for (int j = 0; j < kPairs; ++j) words[u][j] = ptx::load_words(from + 2 * self_.lane + 64 * j);
                    statistics[u] = ptx::load_words(from + kHeadDim);
                }
#pragma unroll
                for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
                    for (int j = 0; j < kPairs; ++j)
                        all = all && has_epoch(words[u][j].first, place_.epoch) &&
                              has_epoch(words[u][j].second, place_.epoch);
                    all = all && has_epoch(statistics[u].first, place_.epoch) &&
                          has_epoch(statistics[u].second, place_.epoch);
                }
                return all;
            });
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                if (base + u >= number) continue;
                const float own_maximum = __uint_as_float(content_of(statistics[u].first));
                const float larger = fmaxf(maximum, own_maximum);
                const float earlier = ptx::exp2_approximate(maximum - larger);
                float own[kColumns];
#pragma unroll
                for (int j = 0; j < kPairs; ++j) {
                    own[2 * j] = __uint_as_float(content_of(words[u][j].first));
                    own[2 * j + 1] = __uint_as_float(content_of(words[u][j].second));
                }
#pragma unroll
                for (int j = 0; j < kColumns; ++j) of.sum[j] *= earlier;
                of.total *= earlier;
                of.add(own, __uint_as_float(content_of(statistics[u].second)),
                       ptx::exp2_approximate(own_maximum - larger));
                maximum = larger;
            }
        }
        return of;
    }

    const Self self_;
    int warp_;
    Place place_;
    bool lost_ = false;
};

/// A function of its own, so that its registers do not add to those of the products.
template <int kHeadDim>
__device__ __forceinline__ int finish_attention(Self self, const Stage& stage, int epilogue_warp, int token,
                                                Place place, int units_done, bool lost) {
    return AttentionEpilogue<kHeadDim>(self, epilogue_warp).run(stage, token, place, units_done, lost);
}

}  // namespace coda::hopper::decode
