// Matrices of 4-bit integers: w = q scale, q in [-8, 7], with a scale in bf16 for each row and kInt4Group columns. Host
// and device.
//
// A matrix (N, K) is kept in units of 16 rows and 128 columns, as the lanes of a warp multiply them: unit by unit along
// a row of units, kInt4UnitWords words of 32 bits each. A word of codes is what a lane needs for one mma.m16n8k16: of
// rows r and r + 8 two pairs of neighbouring columns each. Lane l has rows l / 4 and l / 4 + 8, and of each 64 columns
// 16 (l % 4) to 16 (l % 4) + 15, as with weights in bf16 (hopper/decode/plan/fragment.h). The codes of a pair stand in
// the low and the high half of the word, so that one logical operation takes both.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda {

/// Columns that have one scale, and of a unit.
inline constexpr int kInt4Group = 128;
inline constexpr int kInt4Rows = 16;  // of a unit
inline constexpr int kInt4Zero = 8;   // the code of q = 0
inline constexpr int kInt4PerWord = 8;
inline constexpr int kInt4CodeWords = kInt4Rows * kInt4Group / kInt4PerWord;
/// The codes, then a word for each pair of rows r and r + 8: their scales, r's in the low half.
inline constexpr int kInt4UnitWords = kInt4CodeWords + kInt4Rows / 2;

/// Where a number lies in a unit.
struct Int4Place {
    int word, bit;
};
/// The code, q + kInt4Zero, in four bits from `bit` on.
CODA_HD constexpr Int4Place int4_code(int row, int column) {
    const int half = column / 64, lane = row % 8 * 4 + column % 64 / 16, product = column % 16 / 4, pair = column % 4;
    return {half * 128 + lane * 4 + product, 16 * (pair % 2) + 8 * (pair / 2) + 4 * (row / 8)};
}
/// The bits of the scale, in 16 bits from `bit` on.
CODA_HD constexpr Int4Place int4_scale(int row) { return {kInt4CodeWords + row % 8, 16 * (row / 8)}; }

}  // namespace coda
