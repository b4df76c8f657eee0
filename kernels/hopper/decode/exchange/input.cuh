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

/// A slice of one sequence's input, and its place in shared memory. Columns from `columns` to `padded` count as 0.
struct InputSlice {
    const std::uint64_t* from = nullptr;
    char* to = nullptr;
    int columns = 0, padded = 0;  // both 0: no slice
};
inline constexpr int kSlicesTogether = 2;

/// Copies slices from words to shared memory. squares: with kSquares, this lane's share of the sums of their squares;
/// 0 otherwise. One warp; all loads of all slices are on their way at a time.
template <bool kSquares>
__device__ __forceinline__ void fetch_ll(const WarpContext& ctx, const InputSlice (&slices)[kSlicesTogether],
                                         const WorkItem& item, std::uint32_t epoch, float (&squares)[kSlicesTogether]) {
    constexpr int kLoads = kSliceColumns / 4 / 32;
    ptx::LlPair words[kSlicesTogether][kLoads];
#pragma unroll
    for (auto& of_slice : words)
#pragma unroll
        for (ptx::LlPair& pair : of_slice) pair = ll_pair_without_data(epoch);
    ctx.watchdog.wait_together(item, Awaited::input, [&] {
        std::uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < kSlicesTogether; ++i)
#pragma unroll
            for (int u = 0; u < kLoads; ++u) {
                const int four = ctx.lane + 32 * u;
                ptx::load_ll_pair(words[i][u], slices[i].from + 2 * four, 4 * four < slices[i].columns);
            }
#pragma unroll
        for (const auto& of_slice : words)
#pragma unroll
            for (const ptx::LlPair& pair : of_slice) bits |= missing(pair, epoch);
        return bits == 0;
    });
#pragma unroll
    for (int i = 0; i < kSlicesTogether; ++i) {
        squares[i] = 0;
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
            const int four = ctx.lane + 32 * u;
            if (4 * four >= slices[i].padded) continue;
            const uint2 pair = ll_data_pair(words[i][u]);
            *reinterpret_cast<uint2*>(slices[i].to + 8 * four) = pair;
            if constexpr (kSquares) squares[i] += square_sum(pair.x) + square_sum(pair.y);
        }
    }
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
    return op.kind != OpKind::attn_out || ctx.state().start_running[sequence] != 0;
}

/// Copies a warp's slices of every sequence's input to shared memory; nothing for those without input. Lane b returns
/// the sum of the squares of sequence b's slices, in order; 0 where not kSquares, and for an op without a norm.
template <bool kSquares>
class SliceFetch {
  public:
    /// Slices slice, slice + kConsumerWarps, ...; they are `apart` bytes apart, and sequences `pitch` bytes.
    __device__ SliceFetch(const WarpContext& ctx, const DecodeOp& op, const Slices& slices, int slice, int rounds,
                          char* to, int pitch, int apart, const WorkItem& item)
        : ctx_(ctx),
          op_(op),
          slices_(slices),
          item_(item),
          to_(to),
          slice_(slice),
          rounds_(rounds),
          pitch_(pitch),
          apart_(apart),
          batch_(ctx.shape().batch) {
        ptx::hide_origin(ctx_.lane);  // as in_op()
        ptx::hide_origin(batch_);
    }

    __device__ __forceinline__ float run(const StepTokens& tokens) {
        // Where there are Lamport buffers, other slices than rows do not come here: the constant leaves their code out.
        if (ctx_.lamport || (op_.embedded && op_.kind == OpKind::qkv))
            rows(tokens);
        else
            words();
        return own_;
    }

  private:
    /// Round by round, and in a round sequence by sequence.
    struct Place {
        int round = 0, sequence = 0;
    };
    __device__ __forceinline__ void advance(Place& place) const {
        if (++place.sequence < batch_) return;
        place.sequence = 0;
        ++place.round;
    }
    __device__ __forceinline__ bool has_slice(const Place& place) const { return rounds_ > place.round; }
    __device__ __forceinline__ int slice_of(const Place& place) const { return slice_ + place.round * kConsumerWarps; }
    __device__ __forceinline__ char* to(const Place& place) const {
        return to_ + place.round * apart_ + place.sequence * pitch_;
    }

    __device__ __forceinline__ InputSlice input_slice(const Place& place) const {
        if (!has_slice(place) || !has_input(ctx_, op_, place.sequence)) return {};
        const int slice = slice_of(place);
        return {ctx_.words(input_of(ctx_.arguments.exchange, op_.kind).words) +
                    (std::int64_t{place.sequence} * op_.columns + slices_.first_column(slice)) / 2,
                to(place), slices_.columns_of(slice, op_.columns), slices_.blocks_of(slice) * kBlockColumns};
    }

    __device__ __forceinline__ void words() {
        static_assert(kSlicesTogether == 2);
        Place place;
#pragma unroll 1
        while (has_slice(place)) {
            const Place first = place;
            advance(place);
            const Place second = place;
            advance(place);
            const InputSlice slices[] = {input_slice(first), input_slice(second)};
            float squares[kSlicesTogether];
            fetch_ll<kSquares>(ctx_, slices, item_, item_.epoch - 1, squares);
            __syncwarp();
            if (!sums_squares()) continue;
            add(first.sequence, squares[0]);
            if (has_slice(second)) add(second.sequence, squares[1]);
        }
    }

    __device__ __forceinline__ void rows(const StepTokens& tokens) {
        Place place;
#pragma unroll 1
        for (; has_slice(place); advance(place)) {
            const int slice = slice_of(place), columns = slices_.columns_of(slice, op_.columns);
            const Bf16* from = ctx_.operands().table + tokens.of(place.sequence) * ctx_.operands().table_ld +
                               slices_.first_column(slice);
            const float square = fetch_row(ctx_, from, columns, to(place));
            // What a last block has behind the columns counts as 0.
            if (const int end = columns + 4 * ctx_.lane; end < slices_.blocks_of(slice) * kBlockColumns)
                *reinterpret_cast<uint2*>(to(place) + 2 * end) = uint2{};
            __syncwarp();
            if (sums_squares()) add(place.sequence, square);
        }
    }

    __device__ __forceinline__ bool sums_squares() const { return kSquares && has_norm(op_.kind); }

    __device__ __forceinline__ void add(int sequence, float square) {
        const float sum = warp_sum(square);
        if (ctx_.lane == sequence) own_ += sum;
    }

    WarpContext ctx_;
    const DecodeOp& op_;
    const Slices& slices_;
    const WorkItem& item_;
    char* to_;
    int slice_, rounds_, pitch_, apart_, batch_;
    float own_ = 0;
};

}  // namespace coda::hopper::decode
