// Transcendental functions of the epilogues, on the special-function unit: about 2 ulp.
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

}  // namespace coda::hopper
