// The largest magnitude of a tensor, gathered by many threads. Floats that are not negative are ordered as their bits
// are, so the result is independent of order. Device.
#pragma once

#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// The largest of the warp's values, none of which is negative or NaN, in every lane.
__device__ __forceinline__ float warp_largest(float value) {
    return __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(value)));
}

/// *destination = max(*destination, value); both are at least 0. NOTE: it is read first, since most values do not raise
/// it, and atomics on one address queue. It is read through L1: all SMs read one line, and epilogues would wait for L2.
/// L1 holds nothing from before the kernel, so what is read may be older, but never larger. That costs an atomic.
__device__ __forceinline__ void raise_magnitude(float* destination, float value) {
    if (value > __ldca(destination)) atomicMax(reinterpret_cast<unsigned*>(destination), __float_as_uint(value));
}

}  // namespace coda::hopper
