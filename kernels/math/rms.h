// RMSNorm's gradient at one element, with the row statistic given, shared by CPU and GPU.
#pragma once

#include "kernels/dtype.h"

namespace coda {

template <class T>
struct RmsGradient {
    T dx;          // rstd (dn gamma - x̂ c): contribution to the gradient of the residual stream
    T normalised;  // x̂ gamma
    T dgamma;      // dn x̂: this row's share of the norm weight's gradient
};

/// dn: gradient of the normalised activation; c = (1/d) Σ_j x̂_j dn_j gamma_j of the row.
template <class T>
CODA_HD RmsGradient<T> rms_backward(T dn, T x, T rstd, T gamma, T c) {
    const T xhat = x * rstd;
    return {rstd * (dn * gamma - xhat * c), xhat * gamma, dn * xhat};
}

}  // namespace coda
