// Tensor maps of a batch of sequences: rank 3, so that no box reaches from one sequence into the next. Host.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/core/memory.h"

namespace coda::hopper {

/// Map {columns, seq_len, batch} of the row-major bf16 matrix `view` of batch * seq_len rows, with boxes of `box_rows`
/// rows of one sequence and 64 columns (128 bytes, swizzled). Rows past the end of a sequence load as zeros and are not
/// stored. Throws Error naming `operand` where base or row pitch is not a multiple of 16 bytes.
CUtensorMap sequence_map(const Memory& memory, const View& view, const char* operand, std::int64_t seq_len,
                         int box_rows);

}  // namespace coda::hopper
