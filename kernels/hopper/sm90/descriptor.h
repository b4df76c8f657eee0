// Shared-memory matrix descriptors of wgmma for 128-byte-swizzled tiles of bf16. A K-major tile of FP8 has the same
// bytes: 128 k a row, 32 k a step.
//
// A tile is stored as panels of 128-byte rows. K-major: one row per m (or n), 64 consecutive k; rows of a panel follow
// each other at 128 bytes. MN-major: one row per k, 64 consecutive m (or n); a further panel per 64 of m (or n).
// The hardware XORs address bits 4-6 with bits 7-9, so a panel starts at a multiple of 1024 bytes.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/hopper/sm90/limits.h"

namespace coda::hopper {

enum class Major : int { k = 0, mn = 1 };

inline constexpr int kTileK = 64;  // elements of K per GEMM pipeline stage: one 128-byte row of a K-major panel
inline constexpr int kMnPanelBytes = kTileK * kPanelRowBytes;  // an MN-major panel of a GEMM stage: 64 rows of k

/// Descriptor of the MN-major operand at shared address `address`, `panel_bytes` from one panel of 64 m (or n) to the
/// next.
///   bits 0-13  address / 16      bits 16-29 leading byte offset / 16    bits 32-45 stride byte offset / 16
///   bits 62-63 layout, 1 = 128-byte swizzle
CODA_HD constexpr std::uint64_t mn_major_descriptor(std::uint32_t address, std::uint32_t panel_bytes) {
    return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) | static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
           static_cast<std::uint64_t>(kSwizzleAtomBytes >> 4) << 32 | std::uint64_t{1} << 62;
}
/// The same for a K-major operand, whose leading byte offset wgmma does not read.
CODA_HD constexpr std::uint64_t k_major_descriptor(std::uint32_t address) { return mn_major_descriptor(address, 16); }

/// What to add to the descriptor of an MN-major operand for step `k16` of 16 of K: 16 rows per step.
CODA_HD constexpr std::uint32_t mn_major_step(int k16) {
    return static_cast<std::uint32_t>(k16 * (16 * kPanelRowBytes >> 4));
}
/// The same for a K-major operand: inside the swizzled row (legal because the XOR acts on address bits), and every 64
/// of K in the next panel, `panel_bytes` on.
CODA_HD constexpr std::uint32_t k_major_step(int k16, int panel_bytes) {
    return static_cast<std::uint32_t>(k16 / 4 * (panel_bytes >> 4) + k16 % 4 * (16 * 2 >> 4));
}

/// Descriptor of a GEMM operand's tile, kTileK of K, and its step.
CODA_HD constexpr std::uint64_t matrix_descriptor(std::uint32_t address, Major major) {
    return major == Major::mn ? mn_major_descriptor(address, kMnPanelBytes) : k_major_descriptor(address);
}
CODA_HD constexpr std::uint32_t descriptor_k16_step(Major major) {
    return major == Major::mn ? mn_major_step(1) : k_major_step(1, 0);
}

}  // namespace coda::hopper
