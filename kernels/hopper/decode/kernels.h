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
/// For DecodePlan::shares_caches(), with three to eight members of the batch.
Kernel shared_kernel(int head_dim);
Kernel shared_int4_kernel(int head_dim);
/// For more than eight sequences.
Kernel wide_kernel(int head_dim, bool extended);
Kernel wide_int4_kernel(int head_dim, bool extended);

inline Kernel kernel_for(const DecodePlan& plan) {
    const Shape& shape = plan.operands.shape;
    if (plan.shares_caches()) return (shape.int4 ? shared_int4_kernel : shared_kernel)(shape.head_dim);
    constexpr decltype(&ll_kernel) kAll[][2] = {
        {ll_kernel, ll_int4_kernel}, {lamport_kernel, lamport_int4_kernel}, {wide_kernel, wide_int4_kernel}};
    const int octets = uses_lamport(shape.batch) ? octets_of(shape.batch) : 0;
    return kAll[octets][shape.int4 ? 1 : 0](shape.head_dim, shape.extended());
}

}  // namespace coda::hopper::decode
