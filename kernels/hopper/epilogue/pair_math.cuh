// Functions of the epilogues that C++ has not: transcendental ones on the special-function unit, about 2 ulp, and a
// minimum that keeps NaN.
#pragma once

namespace coda::hopper {

inline constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float exp2_approximate(float value) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ float reciprocal_approximate(float value) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ float sigmoid_approximate(float value) {
    return reciprocal_approximate(1.0f + exp2_approximate(-kLog2e * value));
}

/// NaN where `value` is NaN: fminf would take the limit for it and hide it.
__device__ __forceinline__ float minimum_or_nan(float value, float limit) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(limit));
    return result;
}

}  // namespace coda::hopper
