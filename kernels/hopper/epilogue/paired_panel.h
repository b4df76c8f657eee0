// Where the lanes of stmatrix.x4.trans put the columns of a transposed FP8 panel, and where the lanes of
// ldmatrix.x4.trans find them. Host and device.
//
// A thread of a wgmma fragment has rows r and r + 8 of the same columns. The two bytes of a column, one from each row,
// are one 16-bit element. Stored with 16-bit transposition, the eight elements of a column, of rows 0 to 7, become 16
// bytes of the panel's row for that column: rows 0, 8, 1, 9, ..., 7, 15 of the warp (ColumnOrder::paired).
//
// The panel has 64 bytes per row, swizzled: warp w's rows are chunk w. An instruction writes 8 panel rows per matrix.
// No two of them may lie in the same banks.
#pragma once

#include "kernels/hopper/sm90/swizzle.h"

namespace coda::hopper {

inline constexpr int kPairedRowBytes = 64;  // the rows of a sub-tile, a byte each

/// Panels of two columns per accumulator column: a thread has four bytes per row and block of 8 accumulator columns,
/// columns 4 q to 4 q + 3 of 16, for lane q of a quad. They are two elements of one matrix and two of another. Lanes 0
/// and 1 give their first two to matrix 0, lanes 2 and 3 their last two: rows 0, 1, 4, 5, 10, 11, 14, 15 of the panel
/// are in different banks, as 0, 1, 4, 5, 8, 9, 12, 13 are not.
struct WidePairs {
    /// Whether matrix `matrix` (0 or 1) of a block takes the last two of quad lane `quad`'s columns.
    static CODA_HD constexpr bool last_two(int quad, int matrix) { return (quad >= 2) != (matrix == 1); }
    /// Selector of __byte_perm(row r, row r + 8) that makes a register of matrix `matrix`.
    static CODA_HD constexpr unsigned selector(int quad, int matrix) {
        return last_two(quad, matrix) ? 0x7362 : 0x5140;
    }
    /// Panel row to which lane `lane` points: blocks 0 and 1 of 16 panel rows, two matrices each.
    static CODA_HD constexpr int panel_row(int lane) {
        const int matrix = lane / 8, column = lane % 8;
        return 16 * (matrix / 2) + 4 * (column / 2) + column % 2 + (last_two(column / 2, matrix % 2) ? 2 : 0);
    }
};

/// Panels of one column per accumulator column: a matrix is a block of 8 columns, and the four blocks are 32 rows.
struct NarrowPairs {
    static CODA_HD constexpr int panel_row(int lane) { return lane; }
    /// Selector of __byte_perm(register, 0) that takes row r (half 0) or r + 8 (half 1) of its two columns.
    static CODA_HD constexpr unsigned of_row(int half) { return half == 0 ? 0x4420 : 0x4431; }
};

/// Panels of half a column per accumulator column: lane q of a quad has column 4 b + q for block b of 8 accumulator
/// columns. A matrix takes two blocks, and the lane's two elements of it are 4 columns apart.
struct HalfPairs {
    static CODA_HD constexpr int panel_row(int lane) { return lane - lane % 8 + lane % 2 * 4 + lane % 8 / 2; }
};

/// Byte offset in the panel of the 16 bytes that a lane of warp `warp` points to, from the panel row `first` on.
/// `first` is a multiple of 8, so the swizzle does not change.
template <class Pairs>
CODA_HD constexpr int paired_offset(int warp, int lane, int first) {
    return swizzled_offset(Pairs::panel_row(lane), 16 * warp, kPairedRowBytes) + first * kPairedRowBytes;
}

}  // namespace coda::hopper
