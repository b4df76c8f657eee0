// The instances of the fused kernel (kernel.cuh), each kind in a source of its own. Host.
#pragma once

#include "kernels/hopper/decode/plan/arguments.h"

namespace coda::hopper::decode {

using Kernel = void (*)(Arguments);

/// head_dim: 64 or 128.
Kernel ll_kernel(int head_dim);
Kernel lamport_kernel(int head_dim);

inline Kernel kernel_for(const Shape& shape) {
    return uses_lamport(shape.batch) ? lamport_kernel(shape.head_dim) : ll_kernel(shape.head_dim);
}

}  // namespace coda::hopper::decode
