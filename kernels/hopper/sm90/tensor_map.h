// Tensor maps: how the copy engine sees a matrix. Host.
#pragma once

#include <cuda.h>

#include "kernels/core/memory.h"

namespace coda::hopper {

using TensorMapEncoder = decltype(&cuTensorMapEncodeTiled);

/// The driver's encoder, found at run time: the program must start on machines that have no driver. Throws Error where
/// the driver has none.
TensorMapEncoder tensor_map_encoder();

/// Map of the row-major matrix `view` (bf16 or f32) with boxes of `box_rows` x `box_columns` elements, laid out in
/// shared memory with the swizzle whose span equals a box row (32, 64 or 128 bytes). Throws Error where the copy engine
/// cannot address the matrix: base and row pitch must be multiples of 16 bytes.
CUtensorMap tensor_map(const Memory& memory, const View& view, int box_rows, int box_columns);

}  // namespace coda::hopper
