// Tensor maps of a row-major bf16 matrix for copies of some rows, in blocks of columns one behind the other. Host.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda::hopper {

/// On the device; rows start `ld` elements apart, at multiples of 16 bytes.
struct WeightBlocks {
    const Bf16* weights;
    std::int64_t rows, columns, ld;
};

// A box row is `block_columns` long and has the swizzle of its 128 bytes. Both throw Error where the driver refuses.

/// Coordinates {column of the block, row, block}; a box has `box_rows` rows of `box_blocks` blocks, block by block.
/// `columns` is a multiple of `block_columns`. Blocks past the last one load as zeros.
CUtensorMap block_map(const WeightBlocks& of, int box_rows, int block_columns, int box_blocks);

/// Coordinates {column, row, 0}; a box has one block. Columns past the last one load as zeros.
CUtensorMap row_map(const WeightBlocks& of, int box_rows, int block_columns);

}  // namespace coda::hopper
