// The scale of an FP8 tensor from its largest magnitude (UpdateScales). Shared by CPU and GPU.
#pragma once

#include <cmath>

#include "kernels/core/dtype.h"

namespace coda {

/// The exponent of the largest power of two s with s * largest <= 448, kept within ±bound; 0 where `largest` is 0.
/// Exact: nothing is rounded. `largest` is finite and not negative.
template <class T>
CODA_HD int f8_scale_exponent(T largest, int bound) {
    if (largest == 0) return 0;
    int exponent = 0;
    const T mantissa = std::frexp(largest, &exponent);  // largest = mantissa 2^exponent, mantissa in [0.5, 1)
    const int fitting = 9 - exponent - (mantissa > T(0.875) ? 1 : 0);  // 448 = 0.875 2^9
    return fitting < -bound ? -bound : fitting > bound ? bound : fitting;
}

}  // namespace coda
