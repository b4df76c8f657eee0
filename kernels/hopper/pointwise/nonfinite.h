// Finds the first element that is not finite. A training run that has stopped searches its buffers with it. Host.
#pragma once

#include <cstdint>

#include "kernels/hopper/run.h"

namespace coda::hopper {

/// Enqueues kernels that write to *device_result the smallest row * cols + col of an element that is NaN or infinite,
/// or -1 where all are finite. `view` is FP8, bf16, f32 or f64 (Error otherwise); gaps between its rows are not read.
/// Nothing is allocated or synchronised.
void enqueue_first_nonfinite(const View& view, const Memory& memory, std::int64_t* device_result, Stream stream);

}  // namespace coda::hopper
