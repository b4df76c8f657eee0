// TileLoad and TileStore: bf16 and fp32 tiles in swizzled panels of the slot. No bank conflicts: a warp's access
// touches every bank once per 128 bytes.
#pragma once

#include "kernels/hopper/epilogue/program.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// Shared address of byte `byte` (< 16) of 16-byte chunk `chunk` of the thread's row (half 0 or 1) in panel kPanel.
/// NOTE: the panel's offset and the second half, 8 rows further, do not change the swizzle. So they are added last, as
/// constants of the instruction, and panels of equal rows share what comes before.
template <class Slot, int kPanel>
__device__ __forceinline__ std::uint32_t row_chunk(const Here& at, int chunk, int byte) {
    constexpr int kRowBytes = Slot::panel(kPanel).row_bytes;
    const int row = Fragment::row(at.thread.warp, at.thread.lane, 0);
    return ((at.slot + (row * kRowBytes + swizzle_mask(row, kRowBytes) + byte)) ^ (chunk * 16)) + Slot::offset(kPanel) +
           at.half * 8 * kRowBytes;
}

/// A bf16 panel as wide as the accumulator. Four pairs of a thread, of 16 columns, pass in one instruction.
template <class Slot, int kPanel>
struct PairPanel {
    static constexpr int kRowBytes = Slot::panel(kPanel).row_bytes;
    static_assert(kRowBytes == 2 * Slot::kColumns);

    /// The address that this lane gives to ldmatrix or stmatrix: one of the 16 rows in one of the two blocks.
    static __device__ std::uint32_t address(const Here& at) {
        const int lane = at.thread.lane;
        const int row = 16 * at.thread.warp + lane % 16;
        const int chunk = swizzle_mask(row, kRowBytes) ^ lane / 16 * 16 ^ row % 2 * (16 * Slot::kOddRowBlock);
        return ((at.slot + (row * kRowBytes + chunk)) ^ (at.block / 2 * 32)) + Slot::offset(kPanel);
    }
};

/// A bf16 tile as wide as the accumulator.
template <class Slot, int kPanel>
class TileLoad {
  public:
    __device__ void fetch(const Here& at) {
        if (at.block % 2 == 0 && at.half == 0)
            ptx::load_matrix_x4(PairPanel<Slot, kPanel>::address(at), words_[at.block / 2]);
    }
    /// Fetches the tile where it is `present`, which is equal in all lanes; elsewhere the pairs are zeros.
    __device__ void fetch_if(bool present, const Here& at) {
        if (at.block % 2 == 0 && at.half == 0)
            ptx::load_matrix_x4_if(present, PairPanel<Slot, kPanel>::address(at), words_[at.block / 2]);
    }
    __device__ float2 operator[](const Here& at) const {
        return unpack_bf16(words_[at.block / 2][at.block % 2 * 2 + at.half]);
    }

  private:
    std::uint32_t words_[Slot::kColumns / 16][4] = {};  // zero unless fetched
};

/// A bf16 tile as wide as the accumulator. It may overwrite a loaded tile in place, as a warp loads and stores as one.
template <class Slot, int kPanel>
class TileStore {
  public:
    /// Stores the pair and returns it as rounded.
    __device__ float2 put(const Here& at, float2 value) {
        const std::uint32_t rounded = pack_bf16(value.x, value.y);
        pending_[at.block % 2 * 2 + at.half] = rounded;
        if (at.block % 2 == 1 && at.half == 1) ptx::store_matrix_x4(PairPanel<Slot, kPanel>::address(at), pending_);
        return unpack_bf16(rounded);
    }

  private:
    std::uint32_t pending_[4];
};

/// Eight bytes per pair: an fp32 tile, or a bf16 tile twice as wide as the accumulator. NOTE: half a warp, four rows,
/// accesses memory at a time. In rows of 128 bytes, rows 2i and 2i + 1 would meet in the banks of the same two chunks.
/// So odd rows visit a block two away (Slot::kOddRowBlock), and the four rows touch every bank once.
template <class Slot, int kPanel>
struct WidePanel {
    static constexpr int kRowBytes = Slot::panel(kPanel).row_bytes;
    static_assert(kRowBytes == 4 * Slot::kColumns);

    static __device__ std::uint32_t address(const Here& at) {
        const int quad = at.thread.lane % 4, row = Fragment::row(at.thread.warp, at.thread.lane, 0);
        const int chunk = swizzle_mask(row, kRowBytes) ^ quad / 2 * 16 ^ row % 2 * (32 * Slot::kOddRowBlock);
        return ((at.slot + (row * kRowBytes + chunk + quad % 2 * 8)) ^ (at.block * 32)) + Slot::offset(kPanel) +
               at.half * 8 * kRowBytes;
    }
    static __device__ void store(const Here& at, std::uint32_t first, std::uint32_t second) {
        ptx::store_shared_words(address(at), {first, second});
    }
    static __device__ uint2 load(const Here& at) { return ptx::load_shared_words(address(at)); }
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
/// stores two neighbours as one word: the even lane from the even 8-column block, the odd lane from the odd one.
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
        const std::uint32_t own = pack_bf16(held_[at.half], value);
        const std::uint32_t received = __shfl_xor_sync(kAllLanes, own, 1);
        // NOTE: lower halves belong to the even block, upper halves to the odd one.
        const std::uint32_t word = __byte_perm(own, received, odd ? 0x3276 : 0x5410);
        const int byte = odd ? 8 + 2 * (quad - 1) : 2 * quad;
        ptx::store_shared(row_chunk<Slot, kPanel>(at, at.block / 2, byte), word);
    }

  private:
    float held_[2];
};

}  // namespace coda::hopper
