// Tensor maps: how TMA sees a matrix, or a batch of sequences. Host.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/core/memory.h"

namespace coda::hopper {

/// What L2 brings from memory for a box row that it lacks: 256 bytes, as the boxes next to it are loaded soon after, or
/// only the row's own sectors.
enum class L2Fetch { wide, own };

// All throw Error naming the operand where TMA cannot address it: base and row pitch must be multiples of 16 bytes.

/// Map of the row-major matrix `view` (bf16, f32 or FP8) with boxes of `box_rows` x `box_columns` elements, laid out in
/// shared memory with the swizzle whose span equals a box row (32, 64 or 128 bytes).
CUtensorMap tensor_map(const Memory& memory, const View& view, int box_rows, int box_columns,
                       L2Fetch fetch = L2Fetch::wide);

/// Map {columns, seq_len, batch} of the row-major bf16 matrix `view` of batch * seq_len rows, with boxes of `box_rows`
/// rows of one sequence and 64 columns (128 bytes, swizzled). Of rank 3, so that no box reaches from one sequence into
/// the next: rows past the end of a sequence load as zeros and are not stored. `operand` is its name in messages.
CUtensorMap sequence_map(const Memory& memory, const View& view, const char* operand, std::int64_t seq_len,
                         int box_rows);

}  // namespace coda::hopper
