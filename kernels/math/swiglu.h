// SwiGLU of one (gate, up) pair and its gradient, shared by CPU and GPU.
#pragma once

#include <cmath>

#include "kernels/core/dtype.h"

namespace coda {

template <class T>
CODA_HD T sigmoid(T gate) {
    return T(1) / (T(1) + std::exp(-gate));
}

/// silu(gate) up from a given sigma = sigmoid(gate), so that a caller can use a faster exp.
template <class T>
CODA_HD T swiglu(T gate, T up, T sigma) {
    return gate * sigma * up;
}
template <class T>
CODA_HD T swiglu(T gate, T up) {
    return swiglu(gate, up, sigmoid(gate));
}

template <class T>
struct SwigluGradient {
    T dgate, dup;
    T dot;  // gate dgate + up dup
};

/// With s = silu(gate): dgate = dy up (σ + s (1 - σ)), dup = dy s.
template <class T>
CODA_HD SwigluGradient<T> swiglu_backward(T gate, T up, T dy, T sigma) {
    const T silu = gate * sigma;
    const T dgate = dy * up * (sigma + silu * (T(1) - sigma));
    const T dup = dy * silu;
    return {dgate, dup, gate * dgate + up * dup};
}
template <class T>
CODA_HD SwigluGradient<T> swiglu_backward(T gate, T up, T dy) {
    return swiglu_backward(gate, up, dy, sigmoid(gate));
}

}  // namespace coda
