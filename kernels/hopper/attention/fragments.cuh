// What the attention kernels do with accumulators and swizzled tiles besides multiplying. Device.
//
// A tile of head_dim columns lies in shared memory as panels of 64 columns (128-byte swizzled rows). As a wgmma operand
// whose K runs along the row it is K-major; where K runs down the rows it is MN-major. Both read the same bytes.
#pragma once

#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/swizzle.h"

namespace coda::hopper {

/// An accumulator rounded to bf16: fragment k holds its columns 16 k to 16 k + 15. Only fragments [kFirst, kEnd).
template <int kFirst, int kEnd, int kFloats>
__device__ __forceinline__ void round_fragments(const float (&from)[kFloats], std::uint32_t (&to)[kFloats / 8][4]) {
#pragma unroll
    for (int k16 = kFirst; k16 < kEnd; ++k16)
#pragma unroll
        for (int i = 0; i < 4; ++i) to[k16][i] = pack_bf16(from[8 * k16 + 2 * i], from[8 * k16 + 2 * i + 1]);
}

template <int kFloats>
__device__ __forceinline__ void round_fragments(const float (&from)[kFloats], std::uint32_t (&to)[kFloats / 8][4]) {
    round_fragments<0, kFloats / 8>(from, to);
}

/// Where a lane's row of fragment k16 lies, of a warp's 16 rows from row0 on of panels at `address`.
__device__ __forceinline__ std::uint32_t fragment_address(std::uint32_t address, int panel_bytes, int row0, int lane,
                                                          int k16) {
    const int row = row0 + (lane & 15), chunk = (2 * (k16 % 4) + (lane >> 4)) ^ (row & 7);
    return address + k16 / 4 * panel_bytes + row * kPanelRowBytes + chunk * 16;
}

/// Stores the 16 rows of a warp, rounded fragments of 16 columns each, to rows row0.. of panels at `address`.
template <int kFragments>
__device__ __forceinline__ void store_fragments(std::uint32_t address, int panel_bytes, int row0, int lane,
                                                const std::uint32_t (&fragments)[kFragments][4]) {
#pragma unroll
    for (int k16 = 0; k16 < kFragments; ++k16)
        ptx::store_matrix_x4(fragment_address(address, panel_bytes, row0, lane, k16), fragments[k16]);
}

}  // namespace coda::hopper
