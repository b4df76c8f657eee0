// What a lane of a warp has of a position's key and value. Device.
#pragma once

#include "kernels/hopper/decode/plan/attention_input.h"
#include "kernels/hopper/decode/plan/decode_plan.h"

namespace coda::hopper::decode {

/// Four columns of the key, or of the value; index: lane, lane + 32, ...
template <int kHeadDim>
struct KeyValueShare {
    static constexpr int kKeyShares = kHeadDim / 4;
    int index;

    __device__ bool of_value() const { return index >= kKeyShares; }
    __device__ int column() const { return index % kKeyShares * 4; }
    /// In a warp's input memory: of the newest position (0) and of those before it.
    __device__ uint2* kept(char* input, int row) const {
        return reinterpret_cast<uint2*>(input + AttentionInput::rows(kHeadDim)) + row * 2 * kKeyShares + index;
    }
    /// In the cache of a sequence.
    __device__ uint2* stored(const DecodeOp& op, const Shape& shape, int sequence, int kv_head, int position) const {
        const std::int64_t first =
            ((std::int64_t{sequence} * shape.kv_heads + kv_head) * shape.context + position) * kHeadDim;
        return reinterpret_cast<uint2*>((of_value() ? op.values : op.keys) + first + column());
    }
};

}  // namespace coda::hopper::decode
