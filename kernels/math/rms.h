// RMSNorm's backward pass (K9) with the row statistics given, shared by CPU and GPU.
#pragma once

#include "kernels/dtype.h"

namespace coda {

/// Factors of a row: with t = of_acc acc,
///   dx = t gamma - of_x x;  n = of_n x gamma;  share of the norm weight's gradient t x
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
