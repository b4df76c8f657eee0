// A consumer warp's input: its slices of the vector that the stage before made, for every sequence, fetched as soon as
// their words are there. Device.
#pragma once

#include "kernels/hopper/decode/self.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"

namespace coda::hopper::decode {

__device__ __forceinline__ float square_sum(std::uint32_t pair) {
    const float2 value = unpack_bf16(pair);
    return value.x * value.x + value.y * value.y;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
    return value;
}

/// Where the words of a product's input start.
__device__ __forceinline__ std::int64_t input_words(const Exchange& exchange, StageKind kind) {
    switch (kind) {
        case StageKind::attn_out: return exchange.o;
        case StageKind::gate_up: return exchange.middle;
        case StageKind::down: return exchange.y;
        default: return exchange.x;
    }
}

/// `columns` of a vector, from words to shared memory at `to`. Returns this lane's share of the sum of their squares.
/// One warp; four loads of each lane are on their way at a time.
__device__ __forceinline__ float fetch_words(const Self& self, const std::uint64_t* from, int columns, char* to,
                                             const Place& place, std::uint32_t epoch) {
    constexpr int kLoads = 4;
    float square = 0;
    for (int base = self.lane; base < columns / 4; base += 32 * kLoads) {
        ptx::Words words[kLoads];
        self.watch.wait_or_exit(place, Awaited::input, [&] {
#pragma unroll
            for (int u = 0; u < kLoads; ++u)
                if (base + 32 * u < columns / 4) words[u] = ptx::load_words(from + 2 * (base + 32 * u));
            bool all = true;
#pragma unroll
            for (int u = 0; u < kLoads; ++u)
                if (base + 32 * u < columns / 4)
                    all = all && has_epoch(words[u].first, epoch) && has_epoch(words[u].second, epoch);
            return all;
        });
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
            if (base + 32 * u >= columns / 4) continue;
            const uint2 pair{content_of(words[u].first), content_of(words[u].second)};
            *reinterpret_cast<uint2*>(to + 8 * (base + 32 * u)) = pair;
            square += square_sum(pair.x) + square_sum(pair.y);
        }
    }
    return square;
}

/// The same of a row of the embedding.
__device__ __forceinline__ float fetch_row(const Self& self, const Bf16* from, int columns, char* to) {
    float square = 0;
    for (int i = self.lane; i < columns / 4; i += 32) {
        const uint2 pair = __ldg(reinterpret_cast<const uint2*>(from) + i);
        *reinterpret_cast<uint2*>(to + 8 * i) = pair;
        square += square_sum(pair.x) + square_sum(pair.y);
    }
    return square;
}

/// A sequence that did not run at the start of the launch has no attention: its o counts as 0. Words of it would depend
/// on nothing, so those of a layer could come before those of the layer before had been read.
__device__ __forceinline__ bool has_input(const Self& self, const Stage& stage, int sequence) {
    return stage.kind != StageKind::attn_out || self.state.start_running[sequence] != 0;
}

/// A slice of every sequence's input to `to`, sequences `pitch` bytes apart; nothing for those without input. Lane b
/// returns the sum of the squares of sequence b's slice.
__device__ __forceinline__ float fetch_slice(const Self& self, const Stage& stage, const Step& step,
                                             const Slices& slices, int slice, char* to, int pitch, const Place& place) {
    const int first = slices.first_column(slice), padded = slices.blocks_of(slice) * kBlockColumns;
    const int columns = min(padded, stage.columns - first);
    const std::int64_t words = input_words(self.arguments.exchange, stage.kind);
    const std::uint32_t epoch = place.epoch - 1;  // of the stage before
    const bool embedded = stage.embedded && stage.kind == StageKind::qkv;
    float own = 0;
    for (int b = 0; b < self.shape().batch; ++b) {
        if (!has_input(self, stage, b)) continue;
        const int token = step.token(b);
        const float square = embedded
                                 ? fetch_row(self, self.operands().table + token * self.operands().table_ld + first,
                                             columns, to + b * pitch)
                                 : fetch_words(self, self.words(words) + (std::int64_t{b} * stage.columns + first) / 2,
                                               columns, to + b * pitch, place, epoch);
        const int end = columns + 4 * self.lane;  // what a last block has behind the columns counts as 0
        if (end < padded) *reinterpret_cast<uint2*>(to + b * pitch + 2 * end) = uint2{};
        __syncwarp();
        const float sum = warp_sum(square);
        if (self.lane == b) own = sum;
    }
    return own;
}

}  // namespace coda::hopper::decode
