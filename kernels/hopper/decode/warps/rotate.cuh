// RoPE of a pair of q or k in the fused kernel. Device.
#pragma once

#include "kernels/math/rope.h"

namespace coda::hopper::decode {

/// rotate_pair, rounded in one way wherever it is inlined: of a sum of two products the compiler may round either
/// first, and a sequence has the same bits in the instances for few sequences and for many.
__device__ __forceinline__ Pair<float> rotate(Pair<float> pair, float2 angle) {
    return {fmaf(pair.first, angle.x, -__fmul_rn(pair.second, angle.y)),
            fmaf(pair.second, angle.x, __fmul_rn(pair.first, angle.y))};
}

}  // namespace coda::hopper::decode
