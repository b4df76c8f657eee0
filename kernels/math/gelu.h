// GELU of one element and its slope, in both of its kinds, shared by CPU and GPU. With Φ and φ the distribution and the
// density of normal numbers:
//   exact   gelu(z) = z Φ(z);   gelu'(z) = Φ(z) + z φ(z)
//   tanh    gelu(z) = z s with s = (1 + tanh(k (z + κ z³))) / 2 = 1 / (1 + exp(-2 k (z + κ z³)));
//           gelu'(z) = s + 2 k (1 + 3 κ z²) z s (1 - s)
// (Hendrycks and Gimpel, arXiv 1606.08415; k = sqrt(2/π), κ = 0.044715). The second form of s has no difference of
// nearly equal numbers below 0, which 1 + tanh has. The kinds differ by up to 4.7e-4 in gelu(z).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/core/dtype.h"

namespace coda {

enum class Gelu : std::uint8_t { tanh, exact };

inline constexpr double kGeluScale = 1.5957691216057307118;  // 2 sqrt(2/π)
inline constexpr double kGeluCube = 0.044715;

template <class T>
struct GeluValue {
    T y, slope;
};

/// tanh: what s is the logistic function of, times `factor`.
template <class T>
CODA_HD T tanh_gelu_argument(T z, T factor = 1) {
    return z * (factor * T(kGeluScale) + factor * T(kGeluScale * kGeluCube) * (z * z));
}
/// tanh, from a given s, so that a caller can use a faster exp.
template <class T>
CODA_HD GeluValue<T> tanh_gelu(T z, T s) {
    const T y = z * s;
    return {y, s + (T(kGeluScale) + T(3 * kGeluScale * kGeluCube) * (z * z)) * (y - y * s)};
}
/// exact, from given Φ(z) and exp(-z²/2).
template <class T>
CODA_HD GeluValue<T> exact_gelu(T z, T distribution, T exponential) {
    constexpr T kDensity = T(0.39894228040143267794);  // 1 / sqrt(2π)
    return {z * distribution, distribution + kDensity * z * exponential};
}

template <class T>
CODA_HD GeluValue<T> gelu(Gelu kind, T z) {
    if (kind == Gelu::tanh) return tanh_gelu(z, T(1) / (T(1) + std::exp(-tanh_gelu_argument(z))));
    constexpr T kRootHalf = T(0.70710678118654752440);
    return exact_gelu(z, T(0.5) * std::erfc(-kRootHalf * z), std::exp(T(-0.5) * z * z));
}

}  // namespace coda
