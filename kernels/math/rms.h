// RMSNorm's weight as a factor of the next matrix's columns, and RMSNorm's backward pass (K9) from given row
// statistics. Shared by CPU and GPU.
#pragma once

#include "kernels/core/dtype.h"

namespace coda {

/// The factor of a matrix's column that stands for the weight of the norm before it: the weight itself, kept 2^-40 away
/// from 0. In the backward pass a column's sums then are this factor times what they would be without it, and the
/// weight's gradient is such a sum divided by the factor. No sum in bf16 or fp32 notices 2^-40 of a term (one in double
/// does, by 1e-12), and both types have the exponents for it. NaN stays NaN.
template <class T>
CODA_HD T norm_factor(T gamma) {
    constexpr T kLeast = T(0x1p-40);
    if (gamma >= 0 && gamma < kLeast) return kLeast;
    if (gamma < 0 && gamma > -kLeast) return -kLeast;
    return gamma;
}

/// Factors of a row: with t = of_acc acc,
///   dx = t - of_x x;  n = of_n x;  the row's share of the norm weight's gradient, times the weight, is t x
/// (LinearRmsBackward, kernels/ops/linear_rms_backward/op.h).
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
