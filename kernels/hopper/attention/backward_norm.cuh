// Backward attention through the norm of q and k heads (AttentionBackward with gain): what dQ and dK share.
//
//   ẑ = rho z, dn: the gradient rotated back;  hd c = Σ gain ẑ dn;  dz = rho (gain dn - c ẑ)
//
// A row's c is needed before its first element, so a thread goes over its columns twice. In between, its quad adds its
// shares of hd c, and so do the consumers where they split a row.
#pragma once

#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/math/rope.h"

namespace coda::hopper {

/// Row `half` of a thread's two, which has a pair in each block of 8 columns. Gradients lie as in accumulators: pair j
/// of the row in elements 4 j + 2 half and the next one. The other operands are given by pair: pre(j), two bf16 of z,
/// gain(j) and angle(j).
template <int kHeadDim>
struct NormRow {
    int half;
    float rho;     // 0 beyond the sequence
    float factor;  // rstd

    /// Turns the row back through RoPE, and returns the share of hd c of the quad's columns. A row beyond the sequence
    /// must have gradients of 0.
    template <int kFloats, class Pre, class Gain, class Angle>
    __device__ __forceinline__ float begin(const Pre& pre, const Gain& gain, const Angle& angle,
                                           float (&gradient)[kFloats]) const {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kFloats / 4; ++j) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            const float2 by = angle(j);
            const Pair<float> turned = unrotate_pair(Pair<float>{first, second}, by.x, by.y);
            first = turned.first;
            second = turned.second;
            const float2 z = unpack_bf16(pre(j)), weight = gain(j);
            sum += weight.x * z.x * first + weight.y * z.y * second;
        }
        return rho * quad_sum(sum);
    }

    /// dz times the row's rstd in place of dn, where `sum` is hd c; adds dn ẑ to the sums of columns.
    template <int kFloats, class Pre, class Gain>
    __device__ __forceinline__ void finish(float sum, const Pre& pre, const Gain& gain, float (&gradient)[kFloats],
                                           float2 (&columns)[kFloats / 4]) const {
        const float c = sum / kHeadDim, scale = rho * factor;
#pragma unroll
        for (int j = 0; j < kFloats / 4; ++j) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            const float2 z = unpack_bf16(pre(j)), weight = gain(j);
            const float2 normed = {rho * z.x, rho * z.y};
            columns[j].x = fmaf(first, normed.x, columns[j].x);
            columns[j].y = fmaf(second, normed.y, columns[j].y);
            first = scale * (weight.x * first - c * normed.x);
            second = scale * (weight.y * second - c * normed.y);
        }
    }

    /// Σ z dz of the row, with its rstd.
    __device__ __forceinline__ float dot(float sum, float eps) const { return eps * rho * rho * sum * factor; }
};

}  // namespace coda::hopper
