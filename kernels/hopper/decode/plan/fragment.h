// Which elements the lanes of a warp give to an MMA of 16 rows, 16 columns of weights and 8 columns of inputs; and to
// an integer MMA, which takes 32 columns of weights. Host and device.
//
// The hardware fixes which lane holds which (row, k) of the operands, but the sum over k does not care which column of
// the matrix is called k. So of a block of 64 columns (four MMAs) lane l takes columns 16 (l % 4) to 16 (l % 4) + 15:
// two loads of 16 bytes, each of which feeds two MMAs. Weights and inputs are read in the same order.
#pragma once

#include "kernels/hopper/decode/plan/work.h"

namespace coda::hopper::decode {

/// The row of weights, or the column of inputs, of a lane's first elements. Weights have a second row, 8 further on.
CODA_HD int lane_row(int lane) { return lane / 4; }
/// A lane's first column of a block.
CODA_HD int lane_column(int lane) { return lane % 4 * 16; }

/// The byte of an element of a stage. The copy XORs which 16 bytes of a row with the row, so that the 8 lanes that load
/// at a time (2 rows) fall on different banks.
CODA_HD int stage_offset(int row, int column) {
    const int partial = column % kBlockColumns / 8 ^ row % 8;
    return column / kBlockColumns * kBlockBytes + row * kBlockRowBytes + 16 * partial + 2 * (column % 8);
}
/// Where a lane finds its elements of 16 rows of a block. `first` and `second` point to 16 bytes each of its first row.
/// Its second row is `far` bytes further on, and the next block `block` bytes.
struct LaneRows {
    const char *first, *second;
    int far, block;
};
CODA_HD LaneRows rows_of_stage(const char* stage, int lane) {
    const int first = stage_offset(lane_row(lane), lane_column(lane));
    return {stage + first, stage + (first ^ 16), 8 * kBlockRowBytes, kBlockBytes};
}

/// Bytes between inputs of `columns` columns, for the same reason.
CODA_HD constexpr int input_pitch_of(int columns) { return 2 * columns + 16; }

/// Where the result's element i (0 to 3) of a lane is.
CODA_HD int result_row(int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); }
CODA_HD int result_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

// Of 4-bit integers, an MMA's columns of inputs are the high and the low pieces (kernels/math/fixed_point.h) of four
// sequences in turn. They take the place of a slice in bf16: 256 bytes for a unit, with the scales behind the slice. A
// unit has 8 parts. Part p has columns 8 p to 8 p + 7 of each 64, in this order: 16 bytes of high pieces, and 16 of low
// ones.
inline constexpr int kPieceSequences = 4;  // of an MMA
inline constexpr int kUnitInputBytes = 2 * kInt4Group, kScalesOffset = 2 * kSliceColumns;
inline constexpr int kUnitParts = 8;

/// The bytes of a part's pieces in its unit. Parts 4 to 7 have the low pieces first, so that all parts of one kind, and
/// both kinds of 4, lie on different banks.
CODA_HD int piece_offset(int part, bool low) {
    return part / 4 * 128 + (part / 4 ^ (low ? 1 : 0)) * 64 + part % 4 * 16;
}
/// What a lane multiplies: of which of the four sequences, which piece, and which part of each half of a unit.
CODA_HD int piece_sequence(int lane) { return lane / 8; }
CODA_HD bool has_low_piece(int lane) { return lane / 4 % 2 != 0; }
CODA_HD int lane_part(int lane, int half) { return 4 * half + lane % 4; }
/// The sequence of the sum i of a lane: four more for the second MMA's. Its row is result_row(lane, i).
CODA_HD int integer_result_sequence(int lane, int i) { return lane % 4 + i % 2 * kPieceSequences; }

}  // namespace coda::hopper::decode
