// Matrices of 4-bit integers: w = q scale, q in [-8, 7], with a scale in bf16 for each row and kInt4Group columns. Host
// and device.
//
// A matrix (N, K) is kept in units of 16 rows and 128 columns, as the lanes of a warp multiply them: unit by unit along
// a row of units, kInt4UnitWords words of 32 bits each. A code is q in two's complement. A word of codes has four
// neighbouring columns of rows r and r + 8, a byte for each column with r's code in its low half: by a mask, four codes
// are four 8-bit integers, 16 q. A lane's four words are what it needs for two mma.m16n8k32. Lane l has rows l / 4 and
// l / 4 + 8. Of each 64 columns, its words of vector v are of columns 8 (4 v + l % 4) to 7 further on, four each.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda {

/// Columns that have one scale, and of a unit.
inline constexpr int kInt4Group = 128;
inline constexpr int kInt4Rows = 16;  // of a unit
inline constexpr int kInt4PerWord = 8;
inline constexpr int kInt4CodeWords = kInt4Rows * kInt4Group / kInt4PerWord;
/// The codes, then a word for each pair of rows r and r + 8: their scales, r's in the low half.
inline constexpr int kInt4UnitWords = kInt4CodeWords + kInt4Rows / 2;
/// Folders have q + kInt4Zero (src/io/int4_matrix.h).
inline constexpr int kInt4Zero = 8;

/// Where a number lies in a unit.
struct Int4Place {
    int word, bit;
};
/// The code, in four bits from `bit` on.
CODA_HD constexpr Int4Place int4_code(int row, int column) {
    const int eight = column % 64 / 8, lane = row % 8 * 4 + eight % 4;
    return {eight / 4 * 128 + lane * 4 + column / 64 * 2 + column % 8 / 4, 8 * (column % 4) + 4 * (row / 8)};
}
/// q, of a word from its code's `bit` on.
CODA_HD constexpr int int4_of_code(std::uint32_t bits) { return static_cast<int>((bits & 15u) ^ 8u) - 8; }
/// The bits of the scale, in 16 bits from `bit` on.
CODA_HD constexpr Int4Place int4_scale(int row) { return {kInt4CodeWords + row % 8, 16 * (row / 8)}; }

}  // namespace coda
