// A consumer warp's input: its slices of the vector that the stage before made, for every sequence, fetched as soon as
// their words are there. Device.
#pragma once

#include "kernels/hopper/decode/exchange/self.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"

namespace coda::hopper::decode {

/// Rounded in one way, wherever it is inlined: fetches of one sequence and of several must have the same bits.
__device__ __forceinline__ float square_sum(std::uint32_t pair) {
    const float2 value = unpack_bf16(pair);
    return fmaf(value.x, value.x, value.y * value.y);
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
    return value;
}

/// Up to kSliceColumns columns from words to shared memory at `to`. Returns this lane's share of the sum of their
/// squares. One warp; all loads are on their way at a time.
__device__ __forceinline__ float fetch_words(const Self& self, const std::uint64_t* from, int columns, char* to,
                                             const Place& place, std::uint32_t epoch) {
    constexpr int kLoads = kSliceColumns / 4 / 32;
    ptx::Words words[kLoads] = {};  // else registers would hold those of the call before until this one
    const auto each = [&](const auto& fn) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
            const int four = self.lane + 32 * u;
            if (four < columns / 4) fn(four, words[u]);
        }
    };
    self.watch.wait_or_exit(place, Awaited::input, [&] {
        each([&](int four, ptx::Words& word) { word = ptx::load_words(from + 2 * four); });
        bool all = true;
        each([&](int, const ptx::Words& word) { all = all && have_epoch(word, epoch); });
        return all;
    });
    float square = 0;
    each([&](int four, const ptx::Words& word) {
        const uint2 pair = contents_of(word);
        *reinterpret_cast<uint2*>(to + 8 * four) = pair;
        square += square_sum(pair.x) + square_sum(pair.y);
    });
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
class SliceFetch {
  public:
    __device__ SliceFetch(const Self& self, const Stage& stage, const Slices& slices, int slice, char* to, int pitch,
                          const Place& place)
        : self_(self),
          stage_(stage),
          place_(place),
          to_(to),
          pitch_(pitch),
          batch_(self.shape().batch),
          first_(slices.first_column(slice)),
          padded_(slices.blocks_of(slice) * kBlockColumns),
          columns_(slices.columns_of(slice, stage.columns)) {
        ptx::hide_origin(self_.lane);  // as in_stage()
        ptx::hide_origin(batch_);
    }

    __device__ __forceinline__ float run(const Step& step) {
        // Where there are panels, other slices than rows do not come here: the constant leaves their code out.
        const bool rows = self_.panels || (stage_.embedded && stage_.kind == StageKind::qkv);
#pragma unroll 1
        for (int b = 0; b < batch_; ++b)
            if (rows)
                row(step, b);
            else
                words(b);
        return own_;
    }

  private:
    __device__ __forceinline__ void words(int sequence) {
        if (!has_input(self_, stage_, sequence)) return;
        const std::uint64_t* from = self_.words(input_of(self_.arguments.exchange, stage_.kind).words) +
                                    (std::int64_t{sequence} * stage_.columns + first_) / 2;
        const float square = fetch_words(self_, from, columns_, to_ + sequence * pitch_, place_, place_.epoch - 1);
        pad(sequence);
        __syncwarp();
        if (has_norm(stage_.kind)) keep(sequence, square);
    }

    __device__ __forceinline__ void row(const Step& step, int sequence) {
        const Bf16* from = self_.operands().table + step.token(sequence) * self_.operands().table_ld + first_;
        const float square = fetch_row(self_, from, columns_, to_ + sequence * pitch_);
        pad(sequence);
        __syncwarp();
        keep(sequence, square);
    }

    /// What a last block has behind the columns counts as 0.
    __device__ __forceinline__ void pad(int sequence) const {
        const int end = columns_ + 4 * self_.lane;
        if (end < padded_) *reinterpret_cast<uint2*>(to_ + sequence * pitch_ + 2 * end) = uint2{};
    }
    __device__ __forceinline__ void keep(int sequence, float square) {
        const float sum = warp_sum(square);
        if (self_.lane == sequence) own_ = sum;
    }

    Self self_;
    const Stage& stage_;
    const Place& place_;
    char* to_;
    int pitch_, batch_, first_, padded_, columns_;
    float own_ = 0;
};

}  // namespace coda::hopper::decode
