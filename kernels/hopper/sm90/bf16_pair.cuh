// Two neighbouring bf16 as one 32-bit word, the first in its lower half: the unit of shared memory and registers.
#pragma once

#include <cstdint>

#include "kernels/hopper/ptx/math.cuh"

namespace coda::hopper {

__device__ __forceinline__ std::uint32_t pack_bf16(float first, float second) {
    return ptx::round_to_bf16x2(first, second);
}

__device__ __forceinline__ float2 unpack_bf16(std::uint32_t pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

}  // namespace coda::hopper
