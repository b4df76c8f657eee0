// The products of a k-tile: 16 rows of weights, in either format, times the inputs of up to eight sequences. Device.
#pragma once

#include "kernels/hopper/decode/plan/fragment.h"
#include "kernels/hopper/ptx/int4.cuh"
#include "kernels/hopper/ptx/mma.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"

namespace coda::hopper::decode {

/// Four sums, so that an MMA need not wait for the one before. They are added in order at the end.
struct Sums {
    float of[4][4] = {};

    __device__ float total(int i) const { return of[0][i] + of[1][i] + of[2][i] + of[3][i]; }
};

__device__ __forceinline__ uint4 load_vector(const char* from) { return *reinterpret_cast<const uint4*>(from); }

/// Adds 16 rows times the lanes' columns of inputs; both in shared memory. Lanes whose column does not exist are not
/// `live`: it counts as 0. One warp; the loads of kUnroll blocks are on their way at a time.
template <int kUnroll = 2>
__device__ __forceinline__ void multiply(Sums& sums, const LaneRows& rows, const char* column, bool live, int blocks) {
#pragma unroll kUnroll
    for (int block = 0; block < blocks; ++block) {
        const char *first = rows.first + block * rows.block, *second = rows.second + block * rows.block;
        const char* input = column + block * kBlockRowBytes;
        const uint4 a = load_vector(first), c = load_vector(second), e = load_vector(first + rows.far),
                    g = load_vector(second + rows.far);
        const uint4 b = live ? load_vector(input) : uint4{}, d = live ? load_vector(input + 16) : uint4{};
        ptx::mma_m16n8k16(sums.of[0], a.x, e.x, a.y, e.y, b.x, b.y);
        ptx::mma_m16n8k16(sums.of[1], a.z, e.z, a.w, e.w, b.z, b.w);
        ptx::mma_m16n8k16(sums.of[2], c.x, g.x, c.y, g.y, d.x, d.y);
        ptx::mma_m16n8k16(sums.of[3], c.z, g.z, c.w, g.w, d.z, d.w);
    }
}

/// A word of codes as weights: of rows r and r + 8 two pairs each.
__device__ __forceinline__ void multiply_codes(float (&sums)[4], std::uint32_t codes, std::uint32_t b0,
                                               std::uint32_t b1) {
    ptx::mma_m16n8k16(sums, ptx::numbers_of(codes), ptx::numbers_of(codes >> 4), ptx::numbers_of(codes >> 8),
                      ptx::numbers_of(codes >> 12), b0, b1);
}

/// The same of units of 4-bit integers, which lie one behind the other. The sum of a unit's products is multiplied by
/// the scale of its row: numbers times scales would have to be rounded, and there are 16 times as many.
__device__ __forceinline__ void multiply_units(Sums& sums, const char* units, int lane, const char* column, bool live,
                                               int number) {
    const char* own = units + 16 * lane;
    const char* own_scales = units + 4 * kInt4CodeWords + lane_row(lane) * 4;
#pragma unroll 1  // two units at a time are 6% slower
    for (int unit = 0; unit < number; ++unit) {
        const float2 scales = unpack_bf16(*reinterpret_cast<const std::uint32_t*>(own_scales + unit * kUnitBytes));
        Sums of_unit;
#pragma unroll
        for (int block = 0; block < kUnitBlocks; ++block) {
            const char* input = column + (unit * kUnitBlocks + block) * kBlockRowBytes;
            const uint4 codes = load_vector(own + unit * kUnitBytes + block * 32 * 16);
            const uint4 b = live ? load_vector(input) : uint4{}, d = live ? load_vector(input + 16) : uint4{};
            multiply_codes(of_unit.of[0], codes.x, b.x, b.y);
            multiply_codes(of_unit.of[1], codes.y, b.z, b.w);
            multiply_codes(of_unit.of[2], codes.z, d.x, d.y);
            multiply_codes(of_unit.of[3], codes.w, d.z, d.w);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.of[0][i] = fmaf(i < 2 ? scales.x : scales.y, of_unit.total(i), sums.of[0][i]);
    }
}

}  // namespace coda::hopper::decode
