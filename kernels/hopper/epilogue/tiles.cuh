// TileLoad and TileStore: bf16 and fp32 tiles in swizzled panels of the slot. No bank conflicts: a warp's access
// touches every bank once per 128 bytes.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/epilogue/program.cuh"
#include "kernels/hopper/ptx/shared.cuh"

namespace coda::hopper {

__device__ __forceinline__ std::uint32_t pack_bf16(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ __forceinline__ float2 unpack_bf16(std::uint32_t pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

/// Shared address of byte `byte` (< 16) of 16-byte chunk `chunk` of the thread's row (half 0 or 1) in panel kPanel.
template <class Slot, int kPanel>
__device__ __forceinline__ std::uint32_t row_chunk(const Here& at, int chunk, int byte) {
    constexpr int kRowBytes = Slot::panel(kPanel).row_bytes;
    const int row = Fragment::row(at.thread.warp, at.thread.lane, 0);
    // NOTE: 8 rows further the swizzle is the same, so the second half is a constant offset.
    return ((at.slot + (Slot::offset(kPanel) + row * kRowBytes + swizzle_mask(row, kRowBytes) + byte)) ^ (chunk * 16)) +
           at.half * 8 * kRowBytes;
}

/// A bf16 tile as wide as the accumulator.
template <class Slot, int kPanel>
class TileLoad {
    static_assert(Slot::panel(kPanel).row_bytes == 2 * Slot::kColumns);

  public:
    __device__ void fetch(const Here& at) {
        words_[2 * at.block + at.half] =
            ptx::load_shared(row_chunk<Slot, kPanel>(at, at.block, 4 * (at.thread.lane % 4)));
    }
    __device__ float2 operator[](const Here& at) const { return unpack_bf16(words_[2 * at.block + at.half]); }

  private:
    std::uint32_t words_[Slot::kColumns / 4];
};

/// A bf16 tile as wide as the accumulator: four pairs of a thread leave in one stmatrix.
template <class Slot, int kPanel>
class TileStore {
    static_assert(Slot::panel(kPanel).row_bytes == 2 * Slot::kColumns);

  public:
    /// Stores the pair and returns it as rounded.
    __device__ float2 put(const Here& at, float2 value) {
        const std::uint32_t rounded = pack_bf16(value.x, value.y);
        pending_[at.block % 2 * 2 + at.half] = rounded;
        if (at.block % 2 == 1 && at.half == 1) {
            constexpr int kRowBytes = Slot::panel(kPanel).row_bytes;
            const int lane = at.thread.lane;
            const int row = 16 * at.thread.warp + lane % 16;
            const std::uint32_t base = at.slot + Slot::offset(kPanel) + row * kRowBytes;
            // NOTE: in place, the block still holds what the other lanes of the warp have loaded.
            __syncwarp();
            const std::uint32_t chunk = swizzle_mask(row, kRowBytes) ^ (lane / 16 * 16);
            ptx::store_matrix_x4((base + chunk) ^ (at.block / 2 * 32), pending_);
        }
        return unpack_bf16(rounded);
    }

  private:
    std::uint32_t pending_[4];
};

/// Eight bytes per pair: an fp32 tile, or a bf16 tile twice as wide as the accumulator. NOTE: two neighbouring rows
/// would meet in the same banks; the odd one takes its two words in the other order.
template <class Slot, int kPanel>
struct WidePanel {
    static_assert(Slot::panel(kPanel).row_bytes == 4 * Slot::kColumns);

    static __device__ std::uint32_t address(const Here& at) {
        const int quad = at.thread.lane % 4;
        return row_chunk<Slot, kPanel>(at, 2 * at.block, quad % 2 * 8 + swapped(at) * 4) ^ (quad / 2 * 16);
    }
    static __device__ int swapped(const Here& at) { return at.thread.lane / 4 % 2; }

    static __device__ void store(const Here& at, std::uint32_t first, std::uint32_t second) {
        const bool swap = swapped(at) != 0;
        const std::uint32_t where = address(at);
        ptx::store_shared(where, swap ? second : first);
        ptx::store_shared(where ^ 4, swap ? first : second);
    }
    static __device__ uint2 load(const Here& at) {
        const bool swap = swapped(at) != 0;
        const std::uint32_t where = address(at);
        const std::uint32_t one = ptx::load_shared(where);
        const std::uint32_t other = ptx::load_shared(where ^ 4);
        return swap ? make_uint2(other, one) : make_uint2(one, other);
    }
};

template <class Slot, int kPanel>
struct TileStoreF32 {
    __device__ void put(const Here& at, float2 value) {
        WidePanel<Slot, kPanel>::store(at, __float_as_uint(value.x), __float_as_uint(value.y));
    }
};

/// Two column pairs of a bf16 tile of twice the accumulator's width, for accumulator columns (column, column + 1).
struct TwoPairs {
    float2 first, second;
};

template <class Slot, int kPanel>
class WideTileLoad {
  public:
    __device__ void fetch(const Here& at) { words_[2 * at.block + at.half] = WidePanel<Slot, kPanel>::load(at); }
    __device__ TwoPairs operator[](const Here& at) const {
        const uint2 words = words_[2 * at.block + at.half];
        return {unpack_bf16(words.x), unpack_bf16(words.y)};
    }

  private:
    uint2 words_[Slot::kColumns / 4];
};

template <class Slot, int kPanel>
struct WideTileStore {
    __device__ void put(const Here& at, float2 first, float2 second) {
        WidePanel<Slot, kPanel>::store(at, pack_bf16(first.x, first.y), pack_bf16(second.x, second.y));
    }
};

/// A bf16 tile half as wide as the accumulator: one value per pair. Two lanes of a quad exchange a value, so that each
/// stores two neighbours as one word: the even lane those of the even 8-column block, the odd lane those of the odd.
template <class Slot, int kPanel>
class HalfTileStore {
    static_assert(Slot::panel(kPanel).row_bytes == Slot::kColumns);

  public:
    __device__ void put(const Here& at, float value) {
        if (at.block % 2 == 0) {
            held_[at.half] = value;
            return;
        }
        const int quad = at.thread.lane % 4;
        const bool odd = quad % 2 == 1;
        const float received = __shfl_xor_sync(0xffffffffu, odd ? held_[at.half] : value, 1);
        const std::uint32_t word = odd ? pack_bf16(received, value) : pack_bf16(held_[at.half], received);
        const int byte = odd ? 8 + 2 * (quad - 1) : 2 * quad;
        ptx::store_shared(row_chunk<Slot, kPanel>(at, at.block / 2, byte), word);
    }

  private:
    float held_[2];
};

}  // namespace coda::hopper
