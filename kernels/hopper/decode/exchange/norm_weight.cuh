// The weight of the norm before a matrix of 4-bit integers. A matrix in bf16 carries it in its columns; codes cannot,
// so a consumer warp multiplies its slices of the input by it. Device.
#pragma once

#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/ptx/touch.cuh"
#include "kernels/math/rms.h"

namespace coda::hopper::decode {

/// The weight's elements of a slice.
class NormWeight {
  public:
    __device__ __forceinline__ NormWeight(const WarpContext& ctx, const DecodeOp& op, const Slices& slices, int slice)
        : from_(ctx.operands().norms + op.norm + slices.first_column(slice)),
          columns_(slices.columns_of(slice, op.columns)) {}

    /// Brings it to L1 while the input is awaited: a lane touches a line. If registers kept it, others would spill.
    __device__ __forceinline__ void prefetch(int lane) const {
        static_assert(kSliceColumns <= 32 * kLine);
        if (lane * kLine < columns_) ptx::touch(from_ + lane * kLine);
    }

    /// Multiplies the slice of every sequence, `pitch` bytes apart, and rounds the products. Lane b returns the sum of
    /// the squares that sequence b's elements had before, added in SliceFetch's order. One warp.
    __device__ __forceinline__ float apply(const WarpContext& ctx, char* slice, int pitch) const {
        float4 weight[kLoads] = {};  // without values, registers of the loop below spill
#pragma unroll
        for (int u = 0; u < kLoads; ++u)
            if (column(ctx, u) < columns_) weight[u] = __ldg(reinterpret_cast<const float4*>(from_ + column(ctx, u)));
        float own = 0;
#pragma unroll 1
        for (int b = 0; b < ctx.shape().batch; ++b) {
            float square = 0;
#pragma unroll
            for (int u = 0; u < kLoads; ++u) {
                if (column(ctx, u) >= columns_) continue;
                auto* at = reinterpret_cast<uint2*>(slice + b * pitch + 2 * column(ctx, u));
                const uint2 pair = *at;
                square += square_sum(pair.x) + square_sum(pair.y);
                const float2 first = unpack_bf16(pair.x), second = unpack_bf16(pair.y);
                *at = {pack_bf16(first.x * norm_factor(weight[u].x), first.y * norm_factor(weight[u].y)),
                       pack_bf16(second.x * norm_factor(weight[u].z), second.y * norm_factor(weight[u].w))};
            }
            const float sum = warp_sum(square);
            if (ctx.lane == b) own = sum;
        }
        __syncwarp();
        return own;
    }

  private:
    static constexpr int kLoads = kSliceColumns / 4 / 32;
    static constexpr int kLine = 128 / sizeof(float);
    /// Each lane has the columns that it has of an input's words (fetch_ll).
    __device__ __forceinline__ static int column(const WarpContext& ctx, int load) {
        return 4 * (ctx.lane + 32 * load);
    }

    const float* from_;
    int columns_;
};

}  // namespace coda::hopper::decode
