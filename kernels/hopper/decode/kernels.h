// The instances of the fused kernel (kernel.cuh), each kind in a source of its own. Host.
#pragma once

#include "kernels/hopper/decode/plan/arguments.h"

namespace coda::hopper::decode {

using Kernel = void (*)(Arguments);

/// head_dim: 64 or 128. extended: Shape::extended().
Kernel ll_kernel(int head_dim, bool extended);
Kernel lamport_kernel(int head_dim, bool extended);
Kernel ll_int4_kernel(int head_dim, bool extended);
Kernel lamport_int4_kernel(int head_dim, bool extended);

inline Kernel kernel_for(const Shape& shape) {
    const bool lamport = uses_lamport(shape.batch), extended = shape.extended();
    if (shape.int4)
        return lamport ? lamport_int4_kernel(shape.head_dim, extended) : ll_int4_kernel(shape.head_dim, extended);
    return lamport ? lamport_kernel(shape.head_dim, extended) : ll_kernel(shape.head_dim, extended);
}

}  // namespace coda::hopper::decode
