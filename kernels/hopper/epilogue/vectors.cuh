// Vectors that broadcast over a tile, and row and column statistics.
#pragma once

#include <bit>

#include "kernels/hopper/epilogue/program.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// One value of 4 bytes per row (M); `absent` for rows beyond the matrix or without a vector. Loads begin ahead of
/// their rows, so that a GEMM or a sub-tile hides their latency.
template <class T = float>
struct ColumnVector {
    T value[2];

    __device__ void load_rows(const Rows& rows, const T* vector, T absent) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            next_[half] = std::bit_cast<std::uint32_t>(absent);
            ptx::load_ordered_if(vector != nullptr && rows.valid(half), next_[half], vector, rows.row(half));
        }
    }
    __device__ void begin_rows() {
#pragma unroll
        for (int half = 0; half < 2; ++half) value[half] = std::bit_cast<T>(next_[half]);
    }
    __device__ T operator[](const Here& at) const { return value[at.half]; }

  private:
    std::uint32_t next_[2];
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
///
/// NOTE: where registers are short, the sums of two 8-column blocks are handed on as soon as they are complete: four
/// more registers would spill.
template <int kNumber = 0>
class ColumnSum {
  public:
    static constexpr int kStride = 256;                                                  // columns of the widest tile
    static constexpr int kScratchBytes = 4 * kStride * static_cast<int>(sizeof(float));  // one row of sums per warp

    __device__ void add_product(const Here& at, float2 left, float2 right) {
        float2& sum = begun(at);
        sum = {fmaf(left.x, right.x, sum.x), fmaf(left.y, right.y, sum.y)};
    }
    __device__ void add(const Here& at, float2 value) {
        float2& sum = begun(at);
        sum = {sum.x + value.x, sum.y + value.y};
    }

    /// Sums over the eight lanes that share a column. While a lane has several columns, it hands on half of them.
    template <int kBlocks>
    __device__ void end_blocks(const Rows& rows, int column, int block) {
        static_assert(kBlocks == 2 || kBlocks == 4);
        const int lane = rows.thread.lane;
        const bool upper = lane & 16, second = lane & 8, odd = lane & 4;
        float2 pair[kBlocks / 2];
#pragma unroll
        for (int i = 0; i < kBlocks / 2; ++i) {
            const float2 first = sum_[block + i], last = sum_[block + i + kBlocks / 2];
            const float2 give = upper ? first : last, keep = upper ? last : first;
            pair[i] = {keep.x + from(give.x, 16), keep.y + from(give.y, 16)};
        }
        int of_lane = column - rows.column + 8 * block;
        float total;
        if constexpr (kBlocks == 4) {
            const float2 give = second ? pair[0] : pair[1], keep = second ? pair[1] : pair[0];
            const float x = keep.x + from(give.x, 8), y = keep.y + from(give.y, 8);
            total = (odd ? y : x) + from(odd ? x : y, 4);
            of_lane += Fragment::column(lane, (upper ? 2 : 0) + (second ? 1 : 0)) + (odd ? 1 : 0);
        } else {
            const float sum = (second ? pair[0].y : pair[0].x) + from(second ? pair[0].x : pair[0].y, 8);
            total = sum + from(sum, 4);
            of_lane += Fragment::column(lane, upper ? 1 : 0) + (second ? 1 : 0);
        }
        if (kBlocks == 4 || !odd)
            ptx::store_shared(scratch(rows, rows.thread.warp * kStride + of_lane), __float_as_uint(total));
    }

    /// partials[block * N + column] = sum over the warpgroup, in order of its warps.
    __device__ void end_rows(const Rows& rows, float* partials) const {
        const int barrier = 1 + rows.thread.warpgroup;
        ptx::named_barrier_sync(barrier, kWarpgroupThreads);
        const int lane = 32 * rows.thread.warp + rows.thread.lane;
        for (int first = 0; first < rows.width; first += kWarpgroupThreads) {
            const int i = first + lane;
            if (rows.width % kWarpgroupThreads != 0 && i >= rows.width) break;
            const auto of_warp = [&](int warp) {
                return __uint_as_float(ptx::load_shared(scratch(rows, warp * kStride + i)));
            };
            const float total = ((of_warp(0) + of_warp(1)) + of_warp(2)) + of_warp(3);
            if (rows.column + i < rows.columns && rows.block() * kPanelRows < rows.count)
                partials[static_cast<std::int64_t>(rows.block()) * rows.columns + rows.column + i] = total;
        }
        ptx::named_barrier_sync(barrier, kWarpgroupThreads);
    }

  private:
    static __device__ std::uint32_t scratch(const Rows& rows, int index) {
        return rows.scratch + (kNumber * 4 * kStride + index) * static_cast<int>(sizeof(float));
    }

    __device__ float2& begun(const Here& at) {
        float2& sum = sum_[at.block];
        if (at.half == 0) sum = make_float2(0, 0);
        return sum;
    }
    /// What the lane at this distance gives.
    static __device__ float from(float give, int distance) { return __shfl_xor_sync(kAllLanes, give, distance); }

    float2 sum_[4];  // of the blocks of a sub-tile of 32 columns
};

}  // namespace coda::hopper
