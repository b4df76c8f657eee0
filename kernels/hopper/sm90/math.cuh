// Functions that attention, epilogues and pointwise kernels share: approximations, and reductions over a quad, the four
// lanes that hold a row of a wgmma fragment (swizzle.h).
#pragma once

#include <numbers>

#include "kernels/hopper/ptx/math.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

using ptx::exp2_approximate;
using ptx::minimum_or_nan;

inline constexpr float kLog2e = std::numbers::log2e_v<float>;

__device__ __forceinline__ float sigmoid_approximate(float value) {
    return ptx::reciprocal_approximate(1.0f + exp2_approximate(-kLog2e * value));
}

__device__ __forceinline__ float quad_sum(float value) {
    value += __shfl_xor_sync(kAllLanes, value, 1);
    return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ __forceinline__ float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
    return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

}  // namespace coda::hopper
