// Sums by column over the rows of a block. Device.
#pragma once

#include <cuda_runtime.h>

namespace coda::hopper {

/// The columns of a chunk: eight per lane, 16 bytes of bf16.
inline constexpr int kChunkColumns = 32 * 8;

/// A chunk's sums over the rows of kWarps warps, in shared memory. A lane puts its eight neighbouring columns of its
/// warp's rows; after a barrier any thread reads a column, for which the warps' sums are added in their order.
template <int kWarps>
struct ColumnSums {
    alignas(16) float warps[kWarps][kChunkColumns];

    __device__ void put(int warp, int lane, const float (&sum)[8]) {
        auto* to = reinterpret_cast<float4*>(warps[warp] + 8 * lane);
        to[0] = {sum[0], sum[1], sum[2], sum[3]};
        to[1] = {sum[4], sum[5], sum[6], sum[7]};
    }
    __device__ float operator[](unsigned column) const {
        float total = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) total += warps[warp][column];
        return total;
    }
};

}  // namespace coda::hopper
