// A prepared op. Host.
#pragma once

#include <functional>

struct CUstream_st;

namespace coda::hopper {

using Stream = CUstream_st*;

/// Enqueues an op's kernels on a stream. Tensor maps and kernel choice are fixed; nothing is allocated or synchronised
/// at launch, so it can be captured into a graph. Throws Error when a launch is refused.
using Launch = std::function<void(Stream)>;

}  // namespace coda::hopper
