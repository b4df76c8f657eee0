// Sums by column over the 64 rows of a consumer, which backward attention's tails leave as partials: of dgain with a
// norm of heads, of dbias with a bias. A thread has a pair of columns in each block of 8, of two rows.
#pragma once

#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// Adds up the rows of a warp: its lanes share the blocks, so afterwards a lane has the sums of kBlocks / 8 blocks, the
/// first kBlocks / 8 of `columns`, which are those from block_of(lane) on.
template <int kLanes = 4, int kBlocks>
__device__ __forceinline__ void sum_over_rows(float2 (&columns)[kBlocks], int lane) {
    constexpr int kHalf = 2 * kBlocks / kLanes;
    const bool upper = (lane & kLanes) != 0;
    const auto add = [&](float& low, float high) {
        low = (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, kLanes);
    };
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
        add(columns[j].x, columns[j + kHalf].x);
        add(columns[j].y, columns[j + kHalf].y);
    }
    if constexpr (kLanes < 16) sum_over_rows<2 * kLanes>(columns, lane);
}
/// The first block of a lane, for what sum_over_rows has left it: each stage halves the blocks by one bit of the lane.
template <int kBlocks>
__device__ __forceinline__ int block_of(int lane) {
    return kBlocks / 8 * ((lane & 4) + (lane & 8) / 4 + (lane & 16) / 16);
}

/// Puts a warp's sums into its row of `scratch`, shared memory for four rows of fp32.
template <int kBlocks>
__device__ __forceinline__ void put_columns(const float2 (&columns)[kBlocks], std::uint32_t scratch, int warp,
                                            int lane) {
#pragma unroll
    for (int i = 0; i < kBlocks / 8; ++i)
        ptx::store_shared_words(scratch + (8 * (kBlocks * warp + block_of<kBlocks>(lane) + i) + 2 * (lane % 4)) * 4,
                                {__float_as_uint(columns[i].x), __float_as_uint(columns[i].y)});
}
template <int kBlocks>
__device__ __forceinline__ void put_columns(const float2 (&columns)[kBlocks], float (&row)[8 * kBlocks], int lane) {
#pragma unroll
    for (int i = 0; i < kBlocks / 8; ++i)
        *reinterpret_cast<float2*>(&row[8 * (block_of<kBlocks>(lane) + i) + 2 * (lane % 4)]) = columns[i];
}

/// The sum of one column over the four warps, in their order, after a barrier.
template <int kColumns>
__device__ __forceinline__ float column_sum(std::uint32_t scratch, int column) {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp)
        total += __uint_as_float(ptx::load_shared(scratch + (warp * kColumns + column) * 4));
    return total;
}
template <int kColumns>
__device__ __forceinline__ float column_sum(const float (&rows)[4][kColumns], int column) {
    return ((rows[0][column] + rows[1][column]) + rows[2][column]) + rows[3][column];
}

}  // namespace coda::hopper
