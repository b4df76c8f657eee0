// What all lanes of a warp do together. Device.
#pragma once

namespace coda::hopper {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// The sum over each group of kLanes lanes, a power of two, in all of them. All lanes of the warp take part.
template <int kLanes = 32, class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
}

/// Likewise the largest value of the warp.
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, apart));
    return value;
}

}  // namespace coda::hopper
