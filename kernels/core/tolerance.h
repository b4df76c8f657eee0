// How far a correct result may be from the oracle's. An op states it for operands that need more than the rounding of
// their type.
#pragma once

#include <cmath>
#include <cstdint>

namespace coda {

/// Bounds of an operand's error. `rms` finds errors that are everywhere. `largest` finds a single wrong element among
/// any number of right ones: one that is off by more than this share of the tensor's largest magnitude.
struct Tolerance {
    double rms = 0;
    double largest = 0;
};

/// Nothing is computed: a copy, a constant or a flag.
inline constexpr Tolerance kExact{0, 0};

/// A tensor that is rounded once to f8e4m3: 2.64e-2 RMS wherever an element lies in its binade, half a step at most,
/// 2^-4 of an element. Rounded twice, or from a scale that loses elements to zero, it is beyond.
inline constexpr Tolerance kStoredF8{3e-2, 6.5e-2};

/// The accumulators of a GEMM of FP8 operands over `k`, beside their exact value, relative to their RMS. Tensor cores
/// cut every term off at about the 14th bit of the sum that it is added to. With terms of mixed sign that is 0.08% RMS
/// at K 2048, 0.2% at 8192, 0.47% at 32768, and twice as much where the terms have a mean of 0.3 deviations. With an
/// fp32 sum to which the tensor cores' sums of `promotion` elements are added, 0.03% at 512, whatever K is.
inline double f8_product_error(std::int64_t k, std::int64_t promotion) {
    if (promotion > 0 && promotion < k) return 5e-4;
    const auto terms = static_cast<double>(k);
    return k <= 4096 ? 1.5e-3 : 3e-3 * std::fmax(1.0, terms / 8192);
}
/// The same as a tolerance, for a result in fp32 or rounded once to bf16.
inline Tolerance f8_product_tolerance(std::int64_t k, std::int64_t promotion, bool rounded) {
    const double sum = f8_product_error(k, promotion) + (rounded ? 2.3e-3 : 0);
    return {sum, 4 * sum};
}

}  // namespace coda
