// A consumer warp's input for a matrix of 4-bit integers: its slices as fixed-point pieces
// (kernels/math/fixed_point.h), a scale per unit, with the weight of the norm before the matrix. A matrix in bf16
// carries that weight in its columns; codes cannot. Device.
#pragma once

#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/decode/exchange/input_share.cuh"
#include "kernels/hopper/ptx/int4.cuh"
#include "kernels/hopper/ptx/touch.cuh"
#include "kernels/math/fixed_point.h"

namespace coda::hopper::decode {

class FixedPointInput {
  public:
    __device__ __forceinline__ FixedPointInput(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                               int slice)
        : weight_(op.norm < 0 ? nullptr : ctx.operands().norms + op.norm + slices.first_column(slice)),
          columns_(slices.columns_of(slice, op.columns)),
          has_norm_(has_norm(op.kind)),
          shift_(shift_of(slices)) {}

    /// Brings the weight to L1 while the input is awaited: a lane touches a line.
    __device__ __forceinline__ void prefetch(int lane) const {
        static_assert(kSliceColumns <= 32 * kLine);
        if (weight_ != nullptr && lane * kLine < columns_) ptx::touch(weight_ + lane * kLine);
    }

    /// Converts the slice of every sequence of the share from bf16, in its place, and in the partner's where there is
    /// one. For an op with a norm, lane b returns the sum of the squares that sequence b's elements had before the
    /// weight. One warp; a lane has a part of a unit, and where a slice has half the units, the lanes take two
    /// sequences. kTogether times as many at a time, as their shuffles would be waited for one by one.
    template <int kTogether>
    __device__ __forceinline__ float convert(const WarpContext& ctx, const InputShare& share, char* slice) const {
        const float own = has_norm_ ? convert_all<kTogether, true>(ctx, share, slice)
                                    : convert_all<kTogether, false>(ctx, share, slice);
        __syncwarp();
        return own;
    }

    /// Of a sequence's slice as pieces, with its scales.
    __device__ __forceinline__ static int bytes(const Slices& slices) {
        return (kUnitInputBytes * kSliceBlocks / kUnitBlocks + kScaleBytes) >> shift_of(slices);
    }

  private:
    static constexpr int kLine = 128 / sizeof(float);
    static constexpr int kScaleBytes = kSliceBlocks / kUnitBlocks * static_cast<int>(sizeof(float));
    static constexpr int kWords = kInt4Group / kUnitParts / 4;
    static_assert(kSliceColumns == 32 / kUnitParts * kInt4Group);

    /// log2 of the sequences that the warp's lanes take at a time.
    __device__ __forceinline__ static int shift_of(const Slices& slices) {
        return slices.most <= kHalfSliceBlocks ? 1 : 0;
    }

    template <int kTogether, bool kNorm>
    __device__ __forceinline__ float convert_all(const WarpContext& ctx, const InputShare& share, char* slice) const {
        const int own_lane = ctx.lane & (31 >> shift_), which = ctx.lane >> (5 - shift_);
        const int unit = own_lane / kUnitParts, part = ctx.lane % kUnitParts;
        const int first_sequence = share.own().first_sequence(),
                  number = share.own().end_sequence(ctx.shape().batch) - first_sequence;
        const bool has_columns = unit * kInt4Group < columns_;
        float4 weight[kWords];
        if constexpr (kNorm) load_weight(weight, unit, part, has_columns);
        const int first = unit * kUnitInputBytes + part * 16, high = unit * kUnitInputBytes + piece_offset(part, false),
                  low = unit * kUnitInputBytes + piece_offset(part, true);
        float own = 0;
#pragma unroll 1
        for (int group = 0; group << shift_ < number; group += kTogether) {
            float x[kTogether][kWords][4], square[kTogether], largest[kTogether];
            char* of[kTogether];
#pragma unroll
            for (int t = 0; t < kTogether; ++t) {
                // Places without a sequence convert the last one once more, with the same results.
                of[t] = slice + (first_sequence + min((group + t) << shift_ | which, number - 1)) * kInputPitch;
                load(x[t], *reinterpret_cast<const uint4*>(of[t] + first),
                     *reinterpret_cast<const uint4*>(of[t] + first + 2 * 64));
                if constexpr (kNorm) {
                    square[t] = has_columns ? square_of(x[t]) : 0.0f;
                    multiply(x[t], weight);
                }
                largest[t] = largest_of(x[t]);
            }
            __syncwarp();  // all lanes have loaded what is there
#pragma unroll
            for (int lanes = kUnitParts / 2; lanes > 0; lanes /= 2)
#pragma unroll
                for (float& of_unit : largest)
                    of_unit = ptx::largest_magnitude_or_nan(of_unit, __shfl_xor_sync(kAllLanes, of_unit, lanes));
            uint4 highs[kTogether], lows[kTogether];
            float scales[kTogether];
#pragma unroll
            for (int t = 0; t < kTogether; ++t) {
                const FixedPoint fixed = fixed_point_of(largest[t]);
                Pieces pieces[kWords];
#pragma unroll
                for (int i = 0; i < kWords; ++i) pieces[i] = pieces_of(x[t][i], fixed.to);
                highs[t] = {pieces[0].high, pieces[1].high, pieces[2].high, pieces[3].high};
                lows[t] = {pieces[0].low, pieces[1].low, pieces[2].low, pieces[3].low};
                scales[t] = fixed.from / ptx::kCodeFactor;
                *reinterpret_cast<uint4*>(of[t] + high) = highs[t];
                *reinterpret_cast<uint4*>(of[t] + low) = lows[t];
                if (part == 0) *reinterpret_cast<float*>(of[t] + kScalesOffset + 4 * unit) = scales[t];
            }
            // One branch for all: with one per sequence, the compiler could not interleave their instructions.
            if (share.shared()) {
                const std::uint32_t away = share.away(ctx), barrier = share.remote_barrier(ctx);
#pragma unroll
                for (int t = 0; t < kTogether; ++t) {
                    if (((group + t) << shift_ | which) >= number) continue;
                    const std::uint32_t to = ptx::shared_address(of[t]) + away;
                    ptx::store_remote(to + high, highs[t], barrier);
                    ptx::store_remote(to + low, lows[t], barrier);
                    if (part == 0) ptx::store_remote(to + kScalesOffset + 4 * unit, scales[t], barrier);
                }
            }
            if constexpr (kNorm) {
#pragma unroll
                for (int lanes = 16; lanes > 0; lanes /= 2)
                    if (lanes < 16 || shift_ == 0)
#pragma unroll
                        for (float& sum : square) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
#pragma unroll
                for (int t = 0; t < kTogether; ++t)
                    if (own_lane == group + t) own = square[t];
            }
        }
        if constexpr (kNorm)
            if (shift_ != 0 || share.shared()) {
                const int sequence = ctx.lane - first_sequence;
                own = __shfl_sync(kAllLanes, own, shift_ != 0 ? sequence % 2 * 16 + sequence / 2 : sequence);
            }
        return own;
    }

    __device__ __forceinline__ void load_weight(float4 (&weight)[kWords], int unit, int part, bool has_columns) const {
        const auto* from = reinterpret_cast<const float4*>(weight_) + unit * kInt4Group / 4 + 2 * part;
#pragma unroll
        for (int i = 0; i < kWords; ++i)
            weight[i] = weight_ != nullptr && has_columns ? __ldg(from + i / 2 * (64 / 4) + i % 2) : float4{1, 1, 1, 1};
    }
    __device__ __forceinline__ static void load(float (&x)[kWords][4], const uint4& first, const uint4& second) {
        const std::uint32_t pairs[2 * kWords] = {first.x,  first.y,  first.z,  first.w,
                                                 second.x, second.y, second.z, second.w};
#pragma unroll
        for (int i = 0; i < 2 * kWords; ++i) {
            const float2 pair = unpack_bf16(pairs[i]);
            x[i / 2][i % 2 * 2] = pair.x;
            x[i / 2][i % 2 * 2 + 1] = pair.y;
        }
    }
    __device__ __forceinline__ static float square_of(const float (&x)[kWords][4]) {
        float square[kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i)
            square[i] = fmaf(x[i][0], x[i][0], x[i][1] * x[i][1]) + fmaf(x[i][2], x[i][2], x[i][3] * x[i][3]);
        return (square[0] + square[1]) + (square[2] + square[3]);
    }
    /// norm_factor(weight) is not needed: what it adds to a weight of 0 is far below a fixed-point number's last bit.
    __device__ __forceinline__ static void multiply(float (&x)[kWords][4], const float4 (&weight)[kWords]) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
            x[i][0] *= weight[i].x;
            x[i][1] *= weight[i].y;
            x[i][2] *= weight[i].z;
            x[i][3] *= weight[i].w;
        }
    }
    __device__ __forceinline__ static float largest_of(const float (&x)[kWords][4]) {
        float largest[kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i)
            largest[i] = ptx::largest_magnitude_or_nan(ptx::largest_magnitude_or_nan(x[i][0], x[i][1]),
                                                       ptx::largest_magnitude_or_nan(x[i][2], x[i][3]));
        return ptx::largest_magnitude_or_nan(ptx::largest_magnitude_or_nan(largest[0], largest[1]),
                                             ptx::largest_magnitude_or_nan(largest[2], largest[3]));
    }

    const float* weight_;  // of the slice's first column on; null: none
    int columns_;
    bool has_norm_;
    int shift_;  // shift_of()
};

}  // namespace coda::hopper::decode
