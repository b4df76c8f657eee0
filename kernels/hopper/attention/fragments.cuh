// What the attention kernels do with accumulators and swizzled tiles besides multiplying. Device.
//
// A tile of head_dim columns lies in shared memory as panels of 64 columns (128-byte swizzled rows). As a wgmma operand
// whose K runs along the row it is K-major; where K runs down the rows it is MN-major. Both read the same bytes.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/swizzle.h"

namespace coda::hopper {

__device__ __forceinline__ float exp2_approximate(float value) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ float2 unpack(std::uint32_t pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

/// An accumulator rounded to bf16: fragment k holds its columns 16 k to 16 k + 15.
template <int kFloats>
__device__ __forceinline__ void round_fragments(const float (&from)[kFloats], std::uint32_t (&to)[kFloats / 8][4]) {
#pragma unroll
    for (int k16 = 0; k16 < kFloats / 8; ++k16)
#pragma unroll
        for (int i = 0; i < 4; ++i) to[k16][i] = pack(from[8 * k16 + 2 * i], from[8 * k16 + 2 * i + 1]);
}

/// Stores the 16 rows of a warp, rounded fragments of 16 columns each, to rows row0.. of panels at `address`.
template <int kFragments>
__device__ __forceinline__ void store_fragments(std::uint32_t address, int panel_bytes, int row0, int lane,
                                                const std::uint32_t (&fragments)[kFragments][4]) {
    const int row = row0 + (lane & 15);
#pragma unroll
    for (int k16 = 0; k16 < kFragments; ++k16) {
        const int chunk = (2 * (k16 % 4) + (lane >> 4)) ^ (row & 7);
        ptx::store_matrix_x4(address + k16 / 4 * panel_bytes + row * kPanelRowBytes + chunk * 16, fragments[k16]);
    }
}

/// Sum over the four lanes that share a row.
__device__ __forceinline__ float quad_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ __forceinline__ float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

}  // namespace coda::hopper
