// A consumer warp's input: its slices of the vector that the op before made, for every sequence, fetched as soon as
// their words are there. Device.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"
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

/// Copies up to kSliceColumns columns from words to shared memory at `to`. Returns this lane's share of the sum of
/// their squares. One warp; all loads are on their way at a time.
__device__ __forceinline__ float fetch_ll(const WarpContext& ctx, const std::uint64_t* from, int columns, char* to,
                                          const WorkItem& item, std::uint32_t epoch) {
    constexpr int kLoads = kSliceColumns / 4 / 32;
    ptx::LlPair words[kLoads] = {};  // else registers would keep the words of the call before
    const auto each = [&](const auto& fn) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
            const int four = ctx.lane + 32 * u;
            if (four < columns / 4) fn(four, words[u]);
        }
    };
    ctx.watchdog.wait_or_exit(item, Awaited::input, [&] {
        each([&](int four, ptx::LlPair& word) { word = ptx::load_ll_pair(from + 2 * four); });
        bool all = true;
        each([&](int, const ptx::LlPair& word) { all = all && have_epoch(word, epoch); });
        return all;
    });
    float square = 0;
    each([&](int four, const ptx::LlPair& word) {
        const uint2 pair = ll_data_pair(word);
        *reinterpret_cast<uint2*>(to + 8 * four) = pair;
        square += square_sum(pair.x) + square_sum(pair.y);
    });
    return square;
}

/// The same of a row of the embedding.
__device__ __forceinline__ float fetch_row(const WarpContext& ctx, const Bf16* from, int columns, char* to) {
    float square = 0;
    for (int i = ctx.lane; i < columns / 4; i += 32) {
        const uint2 pair = __ldg(reinterpret_cast<const uint2*>(from) + i);
        *reinterpret_cast<uint2*>(to + 8 * i) = pair;
        square += square_sum(pair.x) + square_sum(pair.y);
    }
    return square;
}

/// A sequence that did not run at the start of the launch has no attention: its o counts as 0. Words of it would depend
/// on nothing, so the words of a layer could come before those of the layer before had been read.
__device__ __forceinline__ bool has_input(const WarpContext& ctx, const DecodeOp& op, int sequence) {
    return op.kind != OpKind::attn_out || ctx.state.start_running[sequence] != 0;
}

/// Copies a slice of every sequence's input to `to`, sequences `pitch` bytes apart; nothing for those without input.
/// Lane b returns the sum of the squares of sequence b's slice.
class SliceFetch {
  public:
    __device__ SliceFetch(const WarpContext& ctx, const DecodeOp& op, const Slices& slices, int slice, char* to,
                          int pitch, const WorkItem& item)
        : ctx_(ctx),
          op_(op),
          item_(item),
          to_(to),
          pitch_(pitch),
          batch_(ctx.shape().batch),
          first_(slices.first_column(slice)),
          padded_(slices.blocks_of(slice) * kBlockColumns),
          columns_(slices.columns_of(slice, op.columns)) {
        ptx::hide_origin(ctx_.lane);  // as in_op()
        ptx::hide_origin(batch_);
    }

    __device__ __forceinline__ float run(const StepTokens& tokens) {
        // Where there are Lamport buffers, other slices than rows do not come here: the constant leaves their code out.
        const bool rows = ctx_.lamport || (op_.embedded && op_.kind == OpKind::qkv);
#pragma unroll 1
        for (int b = 0; b < batch_; ++b)
            if (rows)
                row(tokens, b);
            else
                words(b);
        return own_;
    }

  private:
    __device__ __forceinline__ void words(int sequence) {
        if (!has_input(ctx_, op_, sequence)) return;
        const std::uint64_t* from = ctx_.words(input_of(ctx_.arguments.exchange, op_.kind).words) +
                                    (std::int64_t{sequence} * op_.columns + first_) / 2;
        const float square = fetch_ll(ctx_, from, columns_, to_ + sequence * pitch_, item_, item_.epoch - 1);
        pad(sequence);
        __syncwarp();
        if (has_norm(op_.kind)) keep(sequence, square);
    }

    __device__ __forceinline__ void row(const StepTokens& tokens, int sequence) {
        const Bf16* from = ctx_.operands().table + tokens.of(sequence) * ctx_.operands().table_ld + first_;
        const float square = fetch_row(ctx_, from, columns_, to_ + sequence * pitch_);
        pad(sequence);
        __syncwarp();
        keep(sequence, square);
    }

    /// What a last block has behind the columns counts as 0.
    __device__ __forceinline__ void pad(int sequence) const {
        const int end = columns_ + 4 * ctx_.lane;
        if (end < padded_) *reinterpret_cast<uint2*>(to_ + sequence * pitch_ + 2 * end) = uint2{};
    }
    __device__ __forceinline__ void keep(int sequence, float square) {
        const float sum = warp_sum(square);
        if (ctx_.lane == sequence) own_ = sum;
    }

    WarpContext ctx_;
    const DecodeOp& op_;
    const WorkItem& item_;
    char* to_;
    int pitch_, batch_, first_, padded_, columns_;
    float own_ = 0;
};

}  // namespace coda::hopper::decode
