// The Hopper executor: prepares an op once, launches it any number of times. Host-only.
#pragma once

#include <functional>

#include "kernels/core/memory.h"
#include "kernels/ops.h"

struct CUstream_st;

namespace coda::hopper {

using Stream = CUstream_st*;

/// A prepared op: enqueues its kernels on a stream. Tensor maps and kernel choice are fixed; nothing is allocated or
/// synchronised at launch, so it can be captured into a graph. Throws Error when a launch is refused.
using Launch = std::function<void(Stream)>;

/// Prepares `op` on buffers of the current device, which must have compute capability 9.0. Throws Error naming the op
/// and the operand when shapes, dtypes, alignment or a tile width do not fit the kernel.
Launch prepare(const Op& op, const Memory& memory);

}  // namespace coda::hopper
