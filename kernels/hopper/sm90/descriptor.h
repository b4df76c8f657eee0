// Shared-memory matrix descriptors of wgmma for 128-byte-swizzled bf16 tiles.
//
// A tile is stored as panels of 128-byte rows. K-major: one row per m (or n), 64 consecutive k; rows of a panel follow
// each other at 128 bytes. MN-major: one row per k, 64 consecutive m (or n); a further panel per 64 of m (or n).
// The hardware XORs address bits 4-6 with bits 7-9, so a panel starts at a multiple of 1024 bytes.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda::hopper {

enum class Major : int { k = 0, mn = 1 };

inline constexpr int kTileK = 64;               // elements of K per pipeline stage: one 128-byte row of a K-major panel
inline constexpr int kPanelRowBytes = 128;      // bytes of a swizzled row
inline constexpr int kSwizzleAtomBytes = 1024;  // 8 rows: the period of the swizzle
inline constexpr int kMnPanelBytes = kTileK * kPanelRowBytes;  // an MN-major panel: 64 rows of k

/// Descriptor of the operand tile at shared address `address` (1024-byte aligned).
///   bits 0-13  address / 16      bits 16-29 leading byte offset / 16    bits 32-45 stride byte offset / 16
///   bits 62-63 layout, 1 = 128-byte swizzle
CODA_HD std::uint64_t matrix_descriptor(std::uint32_t address, Major major) {
    const std::uint64_t leading = major == Major::mn ? kMnPanelBytes : 16;  // unused for K-major
    const std::uint64_t stride = kSwizzleAtomBytes;
    return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 |
           std::uint64_t{1} << 62;
}

/// What to add to the descriptor for the next 16 of K: inside the swizzled row (K-major; legal because the XOR acts on
/// address bits), or 16 rows on (MN-major).
CODA_HD constexpr std::uint32_t descriptor_k16_step(Major major) {
    return (major == Major::mn ? 16 * kPanelRowBytes : 16 * 2) >> 4;
}

}  // namespace coda::hopper
