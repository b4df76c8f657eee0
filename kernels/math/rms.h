// RMSNorm's weight as matrices carry it, and its backward pass (K9) with the row statistics given. Shared by CPU and
// GPU.
#pragma once

#include "kernels/core/dtype.h"

namespace coda {

/// The factor of a matrix's column for the weight of the norm before it: the weight itself, kept 2^-40 away from 0.
/// Products are then of the weight times what they would be without, and its gradient is theirs divided by it. No sum
/// of products in bf16 or fp32 notices 2^-40 of a term (one in double does, by 1e-12), and both have the exponents for
/// it. NaN stays NaN.
template <class T>
CODA_HD T norm_factor(T gamma) {
    constexpr T kLeast = T(0x1p-40);
    if (gamma >= 0 && gamma < kLeast) return kLeast;
    if (gamma < 0 && gamma > -kLeast) return -kLeast;
    return gamma;
}

/// Factors of a row: with t = of_acc acc,
///   dx = t - of_x x;  n = of_n x;  share of the norm weight's gradient, times the weight, t x
/// (kernels/ops/backward.h, LinearRmsBackward).
template <class T>
struct RmsBackwardRow {
    T of_acc, of_x, of_n;
};

/// dot_mean: dot / N. Without scale, acc and dot carry rstd.
template <class T>
CODA_HD RmsBackwardRow<T> rms_backward_row(T alpha, T rstd, T dot_mean) {
    return {alpha, rstd * (alpha * dot_mean), rstd};
}
template <class T>
CODA_HD RmsBackwardRow<T> rms_backward_row(T alpha, T rstd, T dot_mean, T scale) {
    const T of_n = scale * rstd;
    return {alpha * of_n, rstd * (alpha * rstd * dot_mean), of_n};
}

}  // namespace coda
