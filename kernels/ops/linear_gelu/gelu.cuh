// GELU of one element in epilogues, from the special-function unit's exp2 and 1/x.
#pragma once

#include "kernels/hopper/sm90/math.cuh"
#include "kernels/math/gelu.h"

namespace coda::hopper {

/// Both kinds take one exp2 and one 1/x. NOTE: not the unit's tanh: 1 + tanh cancels below 0, where its error would be
/// up to 20% of gelu(-3). The exact kind takes Φ from Abramowitz and Stegun, Handbook of Mathematical Functions,
/// 7.1.26: Φ(-|z|) = (a1 t + ... + a5 t⁵) exp(-z²/2) / 2 with t = 1 / (1 + p |z| / √2), off by 7.5e-8 at most.
template <Gelu kind>
__device__ __forceinline__ GeluValue<float> gelu_approximate(float z) {
    if constexpr (kind == Gelu::tanh) {
        return tanh_gelu(z, ptx::reciprocal_approximate(1.0f + exp2_approximate(tanh_gelu_argument(z, -kLog2e))));
    } else {
        constexpr float kP = 0.3275911f * std::numbers::sqrt2_v<float> / 2;
        constexpr float kHalf[] = {0.127414796f, -0.142248368f, 0.7107068705f, -0.7265760135f, 0.5307027145f};  // a / 2
        const float exponential = exp2_approximate(-0.5f * kLog2e * z * z);
        const float t = ptx::reciprocal_approximate(fmaf(kP, fabsf(z), 1.0f));
        float sum = kHalf[4];
#pragma unroll
        for (int i = 3; i >= 0; --i) sum = fmaf(sum, t, kHalf[i]);
        const float below = sum * t * exponential;  // Φ(-|z|)
        return exact_gelu(z, z < 0 ? below : 1.0f - below, exponential);
    }
}

/// Calls fn.operator()<kind>() for an op's kind.
template <class Fn>
auto with_gelu(Gelu kind, const Fn& fn) {
    return kind == Gelu::tanh ? fn.template operator()<Gelu::tanh>() : fn.template operator()<Gelu::exact>();
}

}  // namespace coda::hopper
