// Statistics of the rows of a matrix in GPU memory (src/engine/tensor_stats.h). Host.
#pragma once

#include "kernels/core/row_stats.h"
#include "kernels/hopper/run.h"

namespace coda::hopper {

/// Enqueues a kernel that writes one RowStats per row of `view` to device_result. `view` is bf16, f32 or f64 (Error
/// otherwise); gaps between its rows are not read. Squares are summed in double in a fixed order, another one than the
/// CPU's. Nothing is allocated or synchronised.
void enqueue_row_stats(const View& view, const Memory& memory, RowStats* device_result, Stream stream);

}  // namespace coda::hopper
