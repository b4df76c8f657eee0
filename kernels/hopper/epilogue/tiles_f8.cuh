// Tiles in FP8: by rows, and transposed (paired_panel.h). No bank conflicts.
#pragma once

#include "kernels/hopper/epilogue/paired_panel.h"
#include "kernels/hopper/epilogue/quad_bytes.h"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/ptx/math.cuh"
#include "kernels/hopper/sm90/magnitude.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// The address that this lane gives to ldmatrix or stmatrix, transposing, for a transposed panel: its 32 panel rows
/// from 32 * `group` on.
template <class Pairs, class Slot, int kPanel>
__device__ __forceinline__ std::uint32_t paired_address(const Here& at, int group) {
    return at.slot + paired_offset<Pairs>(at.thread.warp, at.thread.lane, 0) + Slot::offset(kPanel) +
           group * (32 * kPairedRowBytes);
}

/// A transposed f8e4m3 tile twice as wide as the accumulator. WideTileStoreF8 may overwrite it in place once the whole
/// sub-tile has been fetched: a warp's rows are 16 bytes of each panel row, which no other warp touches.
template <class Slot, int kPanel>
class WideTransposedLoadF8 {
    static_assert(Slot::transposed(kPanel) && Slot::panel(kPanel).row_bytes == 2 * Slot::kColumns);

  public:
    __device__ void fetch(const Here& at) {
        if (at.block % 2 == 0 && at.half == 0)
            ptx::load_matrix_x4_transposed(paired_address<WidePairs, Slot, kPanel>(at, at.block / 2),
                                           words_[at.block / 2]);
    }
    __device__ TwoPairs operator[](const Here& at) const {
        const std::uint32_t* matrices = &words_[at.block / 2][at.block % 2 * 2];
        const bool swapped = WidePairs::last_two(at.thread.lane % 4, 0);
        return {pair(swapped ? matrices[1] : matrices[0], at.half), pair(swapped ? matrices[0] : matrices[1], at.half)};
    }

  private:
    /// One row of a word, which holds rows r and r + 8 of two columns. NOTE: both rows pass in one conversion, which
    /// the compiler shares between the halves.
    static __device__ float2 pair(std::uint32_t word, int half) {
        const std::uint32_t first = ptx::widen_e4m3x2<0>(word), second = ptx::widen_e4m3x2<1>(word);
        if (half == 0) return {ptx::widen_f16<0>(first), ptx::widen_f16<0>(second)};
        return {ptx::widen_f16<1>(first), ptx::widen_f16<1>(second)};
    }

    std::uint32_t words_[Slot::kColumns / 16][4];  // (two blocks, (block, matrix))
};

/// An f8e4m3 tile twice as wide as the accumulator, in panel kRows by rows and in panel kTransposed transposed.
template <class Slot, int kRows, int kTransposed>
class WideTileStoreF8 {
    static_assert(Slot::transposed(kTransposed) && Slot::panel(kTransposed).row_bytes == 2 * Slot::kColumns);

  public:
    /// Four neighbouring columns.
    __device__ void put(const Here& at, float2 first, float2 second) {
        pending_[at.block % 2 * 2 + at.half] = ptx::round_to_e4m3x4(first.x, first.y, second.x, second.y);
        if (at.block % 2 == 1 && at.half == 1) store(at);
    }

  private:
    /// Two blocks.
    __device__ void store(const Here& at) const {
        ptx::store_matrix_x4(PairPanel<Slot, kRows>::address(at), pending_);
        const int lane = at.thread.lane;
        const unsigned select[2] = {WidePairs::selector(lane % 4, 0), WidePairs::selector(lane % 4, 1)};
        const std::uint32_t paired[4] = {
            __byte_perm(pending_[0], pending_[1], select[0]), __byte_perm(pending_[0], pending_[1], select[1]),
            __byte_perm(pending_[2], pending_[3], select[0]), __byte_perm(pending_[2], pending_[3], select[1])};
        ptx::store_matrix_x4_transposed(paired_address<WidePairs, Slot, kTransposed>(at, at.block / 2), paired);
    }

    std::uint32_t pending_[4];  // (block, half)
};

/// An f8e4m3 tile as wide as the accumulator, only transposed.
template <class Slot, int kPanel>
class TransposedStoreF8 {
    static_assert(Slot::transposed(kPanel) && Slot::panel(kPanel).row_bytes == Slot::kColumns);
    static_assert(Slot::kColumns % 32 == 0, "one instruction stores four blocks");

  public:
    /// Returns, with the second half, the codes of rows r and r + 8 of the first column, then of the second.
    __device__ std::uint32_t put(const Here& at, float2 value) {
        if (at.half == 0) {
            upper_ = value;
            return 0;
        }
        pending_[at.block % 4] = ptx::round_to_e4m3x4(upper_.x, value.x, upper_.y, value.y);
        if (at.block % 4 == 3)
            ptx::store_matrix_x4_transposed(paired_address<NarrowPairs, Slot, kPanel>(at, at.block / 4), pending_);
        return pending_[at.block % 4];
    }

  private:
    float2 upper_;
    std::uint32_t pending_[4];
};

/// An f8e4m3 tile as wide as the accumulator, in panel kRows by rows and in panel kTransposed transposed. By rows a
/// lane stores only its two neighbours: eight rows of two words each are in different banks.
template <class Slot, int kRows, int kTransposed>
class TileStoreF8 {
    static_assert(Slot::panel(kRows).row_bytes == Slot::kColumns);

  public:
    __device__ void put(const Here& at, float2 value) {
        const std::uint32_t codes = transposed_.put(at, value);
        if (at.half == 0) return;
        const int byte = at.block % 2 * 8 + 2 * (at.thread.lane % 4);
        Here upper = at;
        upper.half = 0;
        ptx::store_shared_half(row_chunk<Slot, kRows>(upper, at.block / 2, byte),
                               __byte_perm(codes, 0, NarrowPairs::of_row(0)));
        ptx::store_shared_half(row_chunk<Slot, kRows>(at, at.block / 2, byte),
                               __byte_perm(codes, 0, NarrowPairs::of_row(1)));
    }

  private:
    TransposedStoreF8<Slot, kTransposed> transposed_;
};

/// An f8e4m3 tile half as wide as the accumulator, one value per pair: in panel kRows by rows, in natural order, and in
/// panel kTransposed transposed.
template <class Slot, int kRows, int kTransposed>
class HalfTileStoreF8 {
    static_assert(Slot::transposed(kTransposed) && Slot::kColumns == 64, "one instruction stores eight blocks");
    static constexpr int kRowBytes = 32;
    static_assert(Slot::panel(kRows).row_bytes == kRowBytes && Slot::panel(kTransposed).row_bytes == kRowBytes);

  public:
    __device__ void put(const Here& at, float value) {
        held_[at.block % 2][at.half] = value;
        if (at.block % 2 == 0 || at.half == 0) return;
        paired_[at.block / 2] = ptx::round_to_e4m3x4(held_[0][0], held_[0][1], held_[1][0], held_[1][1]);
        if (at.block == 7) store(at);
    }

  private:
    __device__ void store(const Here& at) const {
        const int warp = at.thread.warp, lane = at.thread.lane;
        ptx::store_matrix_x4_transposed(paired_address<HalfPairs, Slot, kTransposed>(at, 0), paired_);
        // A word per row and 16 columns, of which the lane has every fourth: lane % 4 and on.
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = __byte_perm(paired_[i / 2 * 2], paired_[i / 2 * 2 + 1], i % 2 == 0 ? 0x6420 : 0x7531);
        exchange<2>(lane, words);
        exchange<1>(lane, words);
        const int row = 16 * warp + lane % 16;
        ptx::store_matrix_x4(at.slot + swizzled_offset(row, lane / 16 * 16, kRowBytes) + Slot::offset(kRows), words);
    }
    template <int kDistance>
    static __device__ void exchange(int lane, std::uint32_t (&words)[4]) {
        const QuadByteStep<kDistance> step(lane % 4);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const std::uint32_t given = __byte_perm(words[i], words[i + 1], step.given());
            const std::uint32_t received = __shfl_xor_sync(kAllLanes, given, kDistance);
            words[i] = __byte_perm(words[i], received, step.first());
            words[i + 1] = __byte_perm(words[i + 1], received, step.second());
        }
    }

    float held_[2][2];         // (block, half) of two blocks
    std::uint32_t paired_[4];  // two blocks each: rows r and r + 8 of the first, then of the second
};

/// The largest magnitude of a tensor, raised in global memory, which holds at least 0. Independent of order.
struct LargestMagnitude {
    float largest;

    __device__ void clear() { largest = 0; }
    __device__ void add(float value) { largest = fmaxf(largest, fabsf(value)); }
    __device__ void add(float2 values) { largest = fmaxf(largest, fmaxf(fabsf(values.x), fabsf(values.y))); }
    /// The magnitudes were `factor` times the tensor's.
    __device__ void raise(const Thread& thread, float inverse_factor, float* destination) const {
        const float of_warp = warp_largest(largest * inverse_factor);
        if (thread.lane == 0) raise_magnitude(destination, of_warp);
    }
};

}  // namespace coda::hopper
