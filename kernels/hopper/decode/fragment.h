// Which elements the lanes of a warp give to an MMA of 16 rows, 16 columns of weights and 8 columns of inputs. Host and
// device.
//
// The hardware fixes which lane holds which (row, k) of the operands, but the sum over k does not care which column of
// the matrix is called k. So lanes take the columns that 16 bytes in a row hold: over 32 columns (two steps) lane l has
// columns 8 (l % 4) to 8 (l % 4) + 7, four of each step; over 16 columns (a single step at the end) columns 4 (l % 4)
// to 4 (l % 4) + 3. Weights and inputs are read in the same order.
#pragma once

#include "kernels/core/dtype.h"

namespace coda::hopper::decode {

/// The row of weights, or the column of inputs, of a lane's first elements. Weights have a second row, 8 further on.
CODA_HD int lane_row(int lane) { return lane / 4; }
/// A lane's first column of 32, and of 16.
CODA_HD int lane_column_of_pair(int lane) { return lane % 4 * 8; }
CODA_HD int lane_column_of_single(int lane) { return lane % 4 * 4; }

/// Where the result's element i (0 to 3) of a lane is.
CODA_HD int result_row(int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); }
CODA_HD int result_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

/// The k that the hardware gives to element i (0 to 3) of a lane's four of a step: pairs 2 (l % 4), and 8 further on.
CODA_HD int hardware_k(int lane, int i) { return lane % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0); }

}  // namespace coda::hopper::decode
