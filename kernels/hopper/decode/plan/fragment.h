// Which elements the lanes of a warp give to an MMA of 16 rows, 16 columns of weights and 8 columns of inputs. Host and
// device.
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
CODA_HD int input_pitch_of(int columns) { return 2 * columns + 16; }

/// Where the result's element i (0 to 3) of a lane is.
CODA_HD int result_row(int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); }
CODA_HD int result_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

/// The k that the hardware gives to element i (0 to 3) of a lane's four of a step: pairs 2 (l % 4), and 8 further on.
CODA_HD int hardware_k(int lane, int i) { return lane % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0); }

}  // namespace coda::hopper::decode
