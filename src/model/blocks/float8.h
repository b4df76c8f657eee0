// FP8 operands of a block's GEMMs: their scales, and the weights' copies. docs/MATH.md, section 10, has the recipe.
//
// A tensor has one scale, a power of two. It is known before the tensor is, from the largest magnitudes of the steps
// before (UpdateScales), so that whatever makes the tensor rounds it once. wgmma reads FP8 operands along K alone:
// what is multiplied along both of its dimensions exists by rows and transposed, with equal codes.
#pragma once

#include <cstdint>

#include "kernels/core/operand.h"

namespace coda {

/// Scalars of the statistic type.
struct Float8Tensor {
    View scale;
    View amax;  // of this step, before rounding and without the scale; absent where the scale is fixed
};

/// z = x Wᵀ with x (M, K), W (N, K) and the gradient dz (M, N), each in FP8. Absent (false) for a GEMM of other
/// operands.
struct Float8Gemm {
    Float8Tensor input, weight, output_gradient;
    Float8Tensor output;         // z, of the gate/up projection alone, which keeps it for the backward pass in FP8
    View forward, dgrad, wgrad;  // scalars that undo the scales: of x Wᵀ, dz W and dzᵀ x
    View rows, columns;          // of W: (N, K), and transposed, (K, N)

    explicit operator bool() const { return static_cast<bool>(rows); }
};

/// Of a layer, all four or none.
struct Float8Layer {
    Float8Gemm qkv, attn_out, gate_up, down;
};

/// The format of the gradient of q, k and v, which share a scale. Gradients of q and k can be far smaller than those of
/// v: e5m2 reaches farther down than e4m3, which all other tensors take.
inline constexpr DType kQkvGradient = DType::f8e5m2;

/// Steps whose largest magnitudes a scale follows from.
inline constexpr std::int64_t kScaleWindow = 16;

/// Tensor cores keep about 14 bits of a sum of FP8 products, so a dgrad that sums over more than kShortSum features is
/// promoted to fp32 every so many elements. Terms over features have both signs: every 512 elements, with a first sum
/// of 3584, they are up to 0.1% off, and gate_up's dgrad is faster than with 256.
inline constexpr std::int64_t kPromotionOverFeatures = 512;
inline constexpr std::int64_t kShortSum = 8192;
inline std::int64_t promotion_of_dgrad(const Float8Gemm& gemm) {
    return gemm.columns.cols > kShortSum ? kPromotionOverFeatures : 0;
}

}  // namespace coda
