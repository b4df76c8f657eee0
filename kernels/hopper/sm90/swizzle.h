// Where an element of a swizzled shared-memory panel lies, and which of them a thread of a wgmma fragment owns.
//
// A panel has rows of 32, 64 or 128 bytes, equal to the span of its swizzle. TMA XORs the 16-byte chunk
// index (address bits 4 up) with higher address bits: bits 7-9 for 128-byte rows, 7-8 for 64, 7 for 32. A panel starts
// at a multiple of 8 rows * row bytes, so the XOR depends only on the row.
#pragma once

#include "kernels/core/dtype.h"

namespace coda::hopper {

/// XOR that the swizzle applies to byte offsets within row `row`.
CODA_HD constexpr int swizzle_mask(int row, int row_bytes) {
    const int chunks = row_bytes / 16;
    return ((row * row_bytes / 128) & (chunks - 1)) * 16;
}

/// Byte offset in a panel of byte `byte` of row `row`.
CODA_HD constexpr int swizzled_offset(int row, int byte, int row_bytes) {
    return row * row_bytes + (byte ^ swizzle_mask(row, row_bytes));
}

/// The accumulator fragment of m64nN: register 4 j + 2 half + i of a lane is element (row, column) below. A thread owns
/// adjacent column pairs of two rows that are 8 apart; a row is spread over the four lanes of a quad.
struct Fragment {
    static CODA_HD constexpr int row(int warp, int lane, int half) { return 16 * warp + lane / 4 + 8 * half; }
    static CODA_HD constexpr int column(int lane, int block) { return 8 * block + 2 * (lane % 4); }
};

}  // namespace coda::hopper
