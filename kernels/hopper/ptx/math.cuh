// Arithmetic that C++ has no operators or functions for. The approximations run on the special-function unit, about
// 2 ulp, and flush denormal numbers to zero.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

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

/// NaN where `value` is NaN: fminf would return the limit and hide it.
__device__ __forceinline__ float minimum_or_nan(float value, float limit) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(limit));
    return result;
}

/// The larger magnitude; NaN where one is NaN.
__device__ __forceinline__ float largest_magnitude_or_nan(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(fabsf(a)), "f"(fabsf(b)));
    return result;
}

/// Two bf16 in a word, `low` in its lower half, rounded to nearest, ties to even.
__device__ __forceinline__ std::uint32_t round_to_bf16x2(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/// Four f8e4m3 in a word, `first` in its lowest byte, rounded to nearest, ties to even; beyond the largest number,
/// that.
__device__ __forceinline__ std::uint32_t round_to_e4m3x4(float first, float second, float third, float fourth) {
    std::uint32_t word;
    asm("{\n.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n}"
        : "=r"(word)
        : "f"(first), "f"(second), "f"(third), "f"(fourth));
    return word;
}

/// The same of f8e5m2.
__device__ __forceinline__ std::uint32_t round_to_e5m2x4(float first, float second, float third, float fourth) {
    std::uint32_t word;
    asm("{\n.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n}"
        : "=r"(word)
        : "f"(first), "f"(second), "f"(third), "f"(fourth));
    return word;
}

/// Two f8e4m3, the lower and the upper byte of the word's half `half` (0 or 1), as two f16, exactly.
template <int half>
__device__ __forceinline__ std::uint32_t widen_e4m3x2(std::uint32_t word) {
    std::uint32_t pair;
    if constexpr (half == 0) {
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}"
            : "=r"(pair)
            : "r"(word));
    } else {
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, high;\n}"
            : "=r"(pair)
            : "r"(word));
    }
    return pair;
}

/// Half `half` (0 or 1) of two f16.
template <int half>
__device__ __forceinline__ float widen_f16(std::uint32_t pair) {
    float value;
    if constexpr (half == 0) {
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(value) : "r"(pair));
    } else {
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, high;\n}" : "=f"(value) : "r"(pair));
    }
    return value;
}

/// Hides from the compiler how `value` was computed, so that it cannot keep what derives from `value` in registers and
/// share it with other places that compute the same.
__device__ __forceinline__ void hide_origin(int& value) { asm volatile("" : "+r"(value)); }

}  // namespace coda::hopper::ptx
