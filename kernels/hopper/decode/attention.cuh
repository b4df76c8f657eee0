// Attention of a consumer warp: it takes every eighth block of a split, and goes over its blocks with a running maximum
// per query head. The epilogue warps put the eight parts together. Device.
//
//   logits  keys (16 positions at a time) times the queries of the group's heads, by MMA: heads are columns
//   sums    Σ e v in fp32 on CUDA cores: a lane has two or four columns of every head
//
// Of a block's rows the last two positions are written over what the copy brought: n - 1, the newest, from the words of
// qkv; and n - 2, stored in the step before, which the copy may have missed (producer.cuh).
#pragma once

#include "kernels/hopper/decode/attention_input.h"
#include "kernels/hopper/decode/product.cuh"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper::decode {

/// Lane l gives the maximum or sum over the 8 lanes that hold the same columns of a result.
__device__ __forceinline__ float column_max(float value) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
    return value;
}
__device__ __forceinline__ float column_sum(float value) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
    return value;
}

template <int kHeadDim>
class AttentionWarp {
    static constexpr int kPositions = kBlockHalfBytes / 2 / kHeadDim, kTiles = kPositions / kTileRows;
    static constexpr int kRowBytes = 2 * kHeadDim, kPairs = kHeadDim / 64;  // pairs of columns of a lane

  public:
    __device__ AttentionWarp(const Self& self, const Stage& stage, int token, Place place)
        : self_(self), stage_(stage), token_(token), place_(place), group_(self.shape().group()) {}

    /// Blocks warp, warp + 8, ... of a unit whose first chunk is the `chunk`-th. Its part to `part`.
    __device__ void run(const AttentionUnit& unit, std::uint32_t chunk, float* part) {
        const int length = self_.planned(unit.sequence, token_);
        fetch_queries(unit);
        for (int block = self_.warp; block < unit.blocks; block += kConsumerWarps) {
            const int first = (unit.first_block + block) * kPositions;
            const std::uint32_t n = chunk + static_cast<std::uint32_t>(block);
            char* rows = const_cast<char*>(take_chunk(self_, n, place_));
            if (first + kPositions >= length - 1) newest_rows(unit, rows, first, length);
            add_block(rows, min(kPositions, length - first));
            free_chunk(self_, n);
        }
        write(part);
    }

  private:
    __device__ const std::uint64_t* qkv_words(int sequence, int column) const {
        return self_.words(self_.arguments.exchange.qkv) +
               (std::int64_t{sequence} * self_.shape().qkv_columns() + column) / 2;
    }

    __device__ void fetch_queries(const AttentionUnit& unit) {
        char* queries = self_.input();
        __syncwarp();
        for (int g = 0; g < group_; ++g)
            fetch_words(self_, qkv_words(unit.sequence, (unit.kv_head * group_ + g) * kHeadDim), kHeadDim,
                        queries + g * AttentionInput::query_pitch(kHeadDim), place_, place_.epoch - 1);
        __syncwarp();
    }

    /// Positions length - 1 and length - 2, where they lie in the block that starts at `first`.
    __device__ void newest_rows(const AttentionUnit& unit, char* rows, int first, int length) {
        const Shape& shape = self_.shape();
        const int key_column = shape.q_columns() + unit.kv_head * kHeadDim;
        const int newest = length - 1 - first;
        if (newest >= 0 && newest < kPositions) {
            fetch_words(self_, qkv_words(unit.sequence, key_column), kHeadDim, rows + newest * kRowBytes, place_,
                        place_.epoch - 1);
            fetch_words(self_, qkv_words(unit.sequence, key_column + shape.kv_columns()), kHeadDim,
                        rows + kBlockHalfBytes + newest * kRowBytes, place_, place_.epoch - 1);
        }
        if (newest >= 1 && newest <= kPositions) {
            const std::int64_t row =
                (std::int64_t{unit.sequence} * shape.kv_heads + unit.kv_head) * shape.context + length - 2;
            for (int i = self_.lane; i < kRowBytes / 8; i += 32) {  // words of 4 elements
                const std::int64_t at = row * (kRowBytes / 8) + i;
                char* to = rows + (newest - 1) * kRowBytes + 8 * i;
                *reinterpret_cast<uint2*>(to) = __ldcg(reinterpret_cast<const uint2*>(stage_.keys) + at);
                *reinterpret_cast<uint2*>(to + kBlockHalfBytes) =
                    __ldcg(reinterpret_cast<const uint2*>(stage_.values) + at);
            }
        }
        // The next copy into this chunk comes after these writes.
        ptx::fence_async_shared();
        __syncwarp();
    }

    __device__ void add_block(const char* rows, int valid) {
        const int lane = self_.lane;
        char* input = self_.input();
        auto* exponentials = reinterpret_cast<float*>(input + AttentionInput::exponentials(kHeadDim));
        auto* factors = reinterpret_cast<float*>(input + AttentionInput::factors(kHeadDim));
        const float scale = kLog2e * rsqrtf(static_cast<float>(kHeadDim));
        const char* keys = rows + lane_row(lane) * kRowBytes + 2 * lane_column(lane);
        const char* queries = input + lane_row(lane) * AttentionInput::query_pitch(kHeadDim) + 2 * lane_column(lane);
        int blocks = kHeadDim / kBlockColumns;
        ptx::hide_origin(blocks);  // a loop as in the products: unrolled, all of a block's loads would take registers
        float logit[kTiles][4];
        float largest[2] = {maximum_[0], maximum_[1]};
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
            Sums sums;
            const char* first = keys + t * kTileRows * kRowBytes;
            multiply(sums, {first, first + 16, 8 * kRowBytes, kBlockRowBytes}, queries, lane_row(lane) < group_,
                     blocks);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bool inside = t * kTileRows + result_row(lane, i) < valid;
                logit[t][i] = inside ? scale * sums.total(i) : -INFINITY;
                largest[i % 2] = fmaxf(largest[i % 2], logit[t][i]);
            }
        }
        float factor[2], sum[2] = {};
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            largest[c] = column_max(largest[c]);
            factor[c] = ptx::exp2_approximate(maximum_[c] - largest[c]);
            maximum_[c] = largest[c];
        }
        __syncwarp();  // all lanes have used the exponentials of the block before
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const float2 e{ptx::exp2_approximate(logit[t][i] - largest[0]),
                               ptx::exp2_approximate(logit[t][i + 1] - largest[1])};
                sum[0] += e.x;
                sum[1] += e.y;
                const int position = t * kTileRows + result_row(lane, i);
                *reinterpret_cast<float2*>(exponentials + position * kMaxGroup + result_column(lane, i)) = e;
            }
#pragma unroll
        for (int c = 0; c < 2; ++c) total_[c] = total_[c] * factor[c] + column_sum(sum[c]);
        if (lane < 4) *reinterpret_cast<float2*>(factors + 2 * lane) = {factor[0], factor[1]};
        __syncwarp();
        add_values(rows + kBlockHalfBytes, exponentials, factors, valid);
    }

    __device__ void add_values(const char* values, const float* exponentials, const float* factors, int valid) {
#pragma unroll
        for (int g = 0; g < kMaxGroup; ++g)
#pragma unroll
            for (int j = 0; j < 2 * kPairs; ++j) sums_[g][j] *= factors[g];
#pragma unroll kPairs
        for (int p = 0; p < valid; ++p) {
            float value[2 * kPairs];
#pragma unroll
            for (int j = 0; j < kPairs; ++j) {
                const float2 pair = unpack_bf16(
                    *reinterpret_cast<const std::uint32_t*>(values + p * kRowBytes + 4 * self_.lane + 128 * j));
                value[2 * j] = pair.x;
                value[2 * j + 1] = pair.y;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (4 * half >= group_) continue;
                const float4 e = *reinterpret_cast<const float4*>(exponentials + p * kMaxGroup + 4 * half);
                const float of[4] = {e.x, e.y, e.z, e.w};
#pragma unroll
                for (int g = 0; g < 4; ++g)
#pragma unroll
                    for (int j = 0; j < 2 * kPairs; ++j) sums_[4 * half + g][j] += of[g] * value[j];
            }
        }
    }

    /// Per query head its sums; then every head's maximum, then Σ e.
    __device__ void write(float* part) const {
#pragma unroll
        for (int g = 0; g < kMaxGroup; ++g) {
            if (g >= group_) continue;
#pragma unroll
            for (int j = 0; j < kPairs; ++j)
                *reinterpret_cast<float2*>(part + g * kHeadDim + 2 * self_.lane + 64 * j) = {sums_[g][2 * j],
                                                                                             sums_[g][2 * j + 1]};
        }
        float* statistics = part + group_ * kHeadDim;
        if (self_.lane < 4) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                statistics[2 * self_.lane + c] = maximum_[c];
                statistics[kMaxGroup + 2 * self_.lane + c] = total_[c];
            }
        }
        __syncwarp();
    }

    const Self self_;
    const Stage& stage_;
    int token_;
    Place place_;
    int group_;
    // Of the query heads 2 (lane % 4) and + 1.
    float maximum_[2] = {-INFINITY, -INFINITY}, total_[2] = {};
    float sums_[kMaxGroup][2 * kPairs] = {};
};

/// A consumer warp's share of attention. A function of its own, so that its registers do not add to those of the
/// products.
template <int kHeadDim>
__device__ __forceinline__ ConsumerCounts attend_stage(Self self, const Stage& stage, int token, Place place,
                                                       ConsumerCounts counts) {
    const auto units = self.attention_units(token);
    const OwnTiles own = own_tiles(units.number(), stage.rotation, self.sm, self.grid);
    for (int index = 0; index < own.number; ++index, ++counts.units) {
        const AttentionUnit unit = units.unit(own.tile(index));
        place.tile = own.tile(index);
        self.watch.wait_barrier(place, Awaited::free_parts, &self.state.attention_empty,
                                static_cast<std::uint32_t>(counts.units & 1) ^ 1);
        self.stamp(place, Stamp::ready);
        if (self.warp < unit.blocks) {
            AttentionWarp<kHeadDim> warp(self, stage, token, place);
            warp.run(unit, counts.chunks, self.attention_part(self.warp));
        }
        __syncwarp();
        if (self.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&self.state.attention_full));
        counts.chunks += static_cast<std::uint32_t>(unit.blocks);
    }
    return counts;
}

}  // namespace coda::hopper::decode
