// Vectors that broadcast over a tile, and row and column statistics.
#pragma once

#include "kernels/hopper/epilogue/program.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper {

/// One fp32 value per row (M); `absent` for rows beyond the matrix or without a vector.
struct ColumnVector {
    float value[2];

    __device__ void begin_rows(const Rows& rows, const float* vector, float absent) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            value[half] = vector != nullptr && rows.valid(half) ? __ldg(vector + rows.row(half)) : absent;
    }
    __device__ float operator[](const Here& at) const { return value[at.half]; }
};

/// fp32 values per column (N), fetched per sub-tile. Beyond the matrix they are values of an earlier column: not
/// defined, but finite if the vector is.
template <class Slot>
class RowVector {
  public:
    __device__ void begin_slot(const Rows& rows, int column, const float* vector) {
        const int lane_column = column + Fragment::column(rows.thread.lane, 0);
        const float* first = vector + lane_column;
        const int left = rows.columns - lane_column;
        const int swap = rows.thread.lane / 4 % 2 * Slot::kOddRowBlock;  // as the pairs of odd rows
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
            // NOTE: N is a multiple of 8, so a block lies inside or outside as a whole.
            const int ahead = 8 * (block ^ swap);
            ptx::load_ordered_below(value_[block], first + ahead, ahead, left);
        }
    }
    __device__ float2 operator[](const Here& at) const { return value_[at.block]; }

  private:
    static constexpr int kBlocks = Slot::kColumns / 8;

    float2 value_[kBlocks] = {};
};

/// One fp32 sum per row over the tile's columns (or a part of them), written as a tile-major partial.
struct RowSum {
    float sum[2];

    __device__ void clear() { sum[0] = sum[1] = 0; }
    __device__ void add(const Here& at, float value) { sum[at.half] += value; }
    __device__ void add_product(const Here& at, float left, float right) {
        sum[at.half] = fmaf(left, right, sum[at.half]);
    }

    /// partials[tile * M + row] = sum.
    __device__ void write(const Rows& rows, float* partials, int tile) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float total = quad_sum(sum[half]);
            if (rows.thread.lane % 4 == 0 && rows.valid(half) && rows.column < rows.columns)
                partials[static_cast<std::int64_t>(tile) * rows.count + rows.row(half)] = total;
        }
    }
};

/// One fp32 sum per column over the 64 rows of a block, written as a tile-major partial. Sub-tiles of 32 columns.
/// kNumber: which one it is in a program with several. Each uses the kScratchBytes behind those before it.
template <class Slot, int kNumber = 0>
class ColumnSum {
    static_assert(Slot::kColumns == 32, "the exchange below is written for four 8-column blocks");

  public:
    static constexpr int kStride = 256;                                                  // columns of the widest tile
    static constexpr int kScratchBytes = 4 * kStride * static_cast<int>(sizeof(float));  // one row of sums per warp

    __device__ void begin_slot() {
#pragma unroll
        for (int block = 0; block < 4; ++block) sum_[block] = make_float2(0, 0);
    }
    __device__ void add_product(const Here& at, float2 left, float2 right) {
        sum_[at.block].x = fmaf(left.x, right.x, sum_[at.block].x);
        sum_[at.block].y = fmaf(left.y, right.y, sum_[at.block].y);
    }
    __device__ void add(const Here& at, float2 value) {
        sum_[at.block].x += value.x;
        sum_[at.block].y += value.y;
    }

    /// Sums over the eight lanes that share a column; in each step a lane hands on half of its columns.
    __device__ void end_slot(const Rows& rows, int column) {
        const int lane = rows.thread.lane;
        const bool upper = lane & 16;
        float2 pair[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 give = upper ? sum_[i] : sum_[i + 2], keep = upper ? sum_[i + 2] : sum_[i];
            pair[i] = {keep.x + __shfl_xor_sync(0xffffffffu, give.x, 16),
                       keep.y + __shfl_xor_sync(0xffffffffu, give.y, 16)};
        }
        const bool second = lane & 8;
        const float2 give = second ? pair[0] : pair[1], keep = second ? pair[1] : pair[0];
        const float x = keep.x + __shfl_xor_sync(0xffffffffu, give.x, 8);
        const float y = keep.y + __shfl_xor_sync(0xffffffffu, give.y, 8);
        const bool odd = lane & 4;
        const float total = (odd ? y : x) + __shfl_xor_sync(0xffffffffu, odd ? x : y, 4);
        const int block = (upper ? 2 : 0) + (second ? 1 : 0);
        scratch(
            rows)[rows.thread.warp * kStride + column - rows.column + Fragment::column(lane, block) + (odd ? 1 : 0)] =
            total;
    }

    /// partials[block * N + column] = sum over the warpgroup, in order of its warps.
    __device__ void end_rows(const Rows& rows, float* partials) const {
        const int barrier = 1 + rows.thread.warpgroup;
        ptx::named_barrier_sync(barrier, kWarpgroupThreads);
        const int lane = 32 * rows.thread.warp + rows.thread.lane;
        for (int first = 0; first < rows.width; first += kWarpgroupThreads) {
            const int i = first + lane;
            if (rows.width % kWarpgroupThreads != 0 && i >= rows.width) break;
            const float* sums = scratch(rows) + i;
            const float total = ((sums[0] + sums[kStride]) + sums[2 * kStride]) + sums[3 * kStride];
            if (rows.column + i < rows.columns && rows.block() * kPanelRows < rows.count)
                partials[static_cast<std::int64_t>(rows.block()) * rows.columns + rows.column + i] = total;
        }
        ptx::named_barrier_sync(barrier, kWarpgroupThreads);
    }

  private:
    static __device__ float* scratch(const Rows& rows) { return rows.scratch + kNumber * 4 * kStride; }

    float2 sum_[4];
};

}  // namespace coda::hopper
