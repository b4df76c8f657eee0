// The instances of the fused kernel (kernel.cuh), each kind in a source of its own. Host.
#pragma once

#include "kernels/hopper/decode/exchange/arguments.h"

namespace coda::hopper::decode {

using Kernel = void (*)(Arguments);

/// head_dim: 64 or 128.
Kernel words_kernel(int head_dim);
Kernel panels_kernel(int head_dim);

inline Kernel kernel_for(const Shape& shape) {
    return has_panels(shape.batch) ? panels_kernel(shape.head_dim) : words_kernel(shape.head_dim);
}

}  // namespace coda::hopper::decode
