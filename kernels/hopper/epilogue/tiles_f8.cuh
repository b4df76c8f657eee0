// Tiles in FP8: by rows, and transposed (paired_panel.h). No bank conflicts.
#pragma once

#include "kernels/hopper/epilogue/paired_panel.h"
#include "kernels/hopper/epilogue/quad_bytes.h"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/ptx/math.cuh"
#include "kernels/hopper/sm90/magnitude.cuh"

namespace coda::hopper {

/// WideTileLoad where the accumulators' blocks are visited in order in all rows: odd rows load block b ^ 2 in place of
/// b, and give it out in order. The whole sub-tile must have been fetched.
template <class Slot, int kPanel>
class WideTileLoadInOrder {
    static constexpr int kRowBytes = Slot::panel(kPanel).row_bytes;
    static_assert(kRowBytes == 4 * Slot::kColumns && Slot::kColumns == 32 && !Slot::kOddRowsSwapped);
    static constexpr int kOther = 2;  // blocks away

  public:
    __device__ void fetch(const Here& at) {
        const int quad = at.thread.lane % 4, row = Fragment::row(at.thread.warp, at.thread.lane, 0);
        const int chunk = swizzle_mask(row, kRowBytes) ^ quad / 2 * 16 ^ row % 2 * (32 * kOther);
        words_[at.block][at.half] =
            ptx::load_shared_words(((at.slot + (row * kRowBytes + chunk + quad % 2 * 8)) ^ (at.block * 32)) +
                                   Slot::offset(kPanel) + at.half * 8 * kRowBytes);
    }
    __device__ TwoPairs operator[](const Here& at) const {
        const bool odd = (at.thread.lane & 4) != 0;
        const uint2 own = words_[at.block][at.half], other = words_[at.block ^ kOther][at.half];
        return {unpack_bf16(odd ? other.x : own.x), unpack_bf16(odd ? other.y : own.y)};
    }

  private:
    uint2 words_[Slot::kColumns / 8][2];
};

/// An f8e4m3 tile twice as wide as the accumulator, in panel kRows by rows and in panel kTransposed transposed. Two
/// blocks are put, then stored, before the next two are put.
template <class Slot, int kRows, int kTransposed>
class WideTileStoreF8 {
    static_assert(Slot::transposed(kTransposed) && Slot::panel(kTransposed).row_bytes == 2 * Slot::kColumns);

  public:
    /// Four neighbouring columns.
    __device__ void put(const Here& at, float2 first, float2 second) {
        pending_[at.block % 2 * 2 + at.half] = ptx::round_to_e4m3x4(first.x, first.y, second.x, second.y);
    }
    /// Stores blocks `block` and block + 1, of which `block` is even.
    __device__ void store(Here at, int block) const {
        at.block = block;
        ptx::store_matrix_x4(PairPanel<Slot, kRows>::address(at), pending_);
        const int lane = at.thread.lane;
        const unsigned select[2] = {WidePairs::selector(lane % 4, 0), WidePairs::selector(lane % 4, 1)};
        const std::uint32_t paired[4] = {
            __byte_perm(pending_[0], pending_[1], select[0]), __byte_perm(pending_[0], pending_[1], select[1]),
            __byte_perm(pending_[2], pending_[3], select[0]), __byte_perm(pending_[2], pending_[3], select[1])};
        ptx::store_matrix_x4_transposed(at.slot + paired_offset<WidePairs>(at.thread.warp, lane, 0) +
                                            Slot::offset(kTransposed) + block / 2 * (32 * kPairedRowBytes),
                                        paired);
    }

  private:
    std::uint32_t pending_[4];  // (block, half)
};

/// An f8e4m3 tile as wide as the accumulator, transposed alone.
template <class Slot, int kPanel>
class TransposedStoreF8 {
    static_assert(Slot::transposed(kPanel) && Slot::panel(kPanel).row_bytes == Slot::kColumns);
    static_assert(Slot::kColumns == 32, "one instruction stores four blocks");

  public:
    /// Returns, with the second half, the codes of rows r and r + 8 of the first column, then of the second.
    __device__ std::uint32_t put(const Here& at, float2 value) {
        if (at.half == 0) {
            upper_ = value;
            return 0;
        }
        pending_[at.block] = ptx::round_to_e4m3x4(upper_.x, value.x, upper_.y, value.y);
        if (at.block == 3)
            ptx::store_matrix_x4_transposed(
                at.slot + paired_offset<NarrowPairs>(at.thread.warp, at.thread.lane, 0) + Slot::offset(kPanel),
                pending_);
        return pending_[at.block];
    }

  private:
    float2 upper_;
    std::uint32_t pending_[4];
};

/// An f8e4m3 tile as wide as the accumulator, in panel kRows by rows and in panel kTransposed transposed. By rows a
/// lane stores its two neighbours alone: eight rows of two words each are in different banks.
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
        ptx::store_matrix_x4_transposed(at.slot + paired_offset<HalfPairs>(warp, lane, 0) + Slot::offset(kTransposed),
                                        paired_);
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
            const std::uint32_t received = __shfl_xor_sync(0xffffffffu, given, kDistance);
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
