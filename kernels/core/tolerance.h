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

/// What a GEMM adds up. Weights have both signs, so a sum over features has terms of mixed sign. In early training rows
/// of a gradient are alike, so a sum over tokens may have terms of one sign.
enum class SumOver : std::uint8_t { features, tokens };

/// Tensor cores keep about 14 bits of a sum of FP8 products, so long sums are promoted to fp32 at a fixed interval of
/// elements: sums over tokens, and LinearRmsBackward's sums over more than kShortSum features. In early training the
/// terms of a sum over tokens share a sign: every 512 elements such sums lost 0.37%. Terms over features have both
/// signs: every 512 elements, with a first sum of 3584, they are up to 0.1% off, and gate_up's dgrad is faster than
/// with 256.
inline constexpr std::int64_t kPromotionOverTokens = 256;
inline constexpr std::int64_t kPromotionOverFeatures = 512;
inline constexpr std::int64_t kShortSum = 8192;
/// The number of elements for a sum of `k` terms; 0: never.
constexpr std::int64_t f8_promotion(std::int64_t k, SumOver over) {
    if (over == SumOver::tokens) return kPromotionOverTokens;
    return k > kShortSum ? kPromotionOverFeatures : 0;
}

/// The error of the accumulators of a GEMM of FP8 operands over `k`, relative to their RMS. Hopper's tensor cores add
/// 32 terms and the sum so far at once, each cut off 13 bits below the largest of them. That rule gives the losses that
/// were measured over 32768 terms of one sign: 49%, 0.41% with an fp32 sum to which the tensor cores' sums of 512
/// elements are added, 0.094% with sums of 256.
///
/// Without promotion, by the rule: with terms of mixed sign 0.08% RMS at K 2048, 0.2% at 8192, 0.47% at 32768, and
/// twice as much where the terms have a mean of 0.3 deviations.
///
/// With promotion the error does not depend on K (tests/kernels/f8_accumulation_test.cpp). Terms of mixed sign: at 256
/// it is 0.02% where the factors are normal, and up to 0.05% where they are log-normal or one in a thousand is 100
/// times as large; it grows as the root of the interval. Terms of one sign: a term has at most 8 bits, so it is cut
/// only where the sum is 2^6 of it or more, and the loss grows as the square of the interval. At 256 it is 0.21% where
/// the factors are normal, 0.25% to 0.32% where they are log-normal, 0.37% of equal terms with the worst of codes.
/// Without promotion such sums lose 3% to 9% over 4096 terms, and 12% or more over 32768.
inline double f8_product_error(std::int64_t k, std::int64_t promotion, SumOver over) {
    if (promotion > 0 && promotion < k) {
        const double interval = static_cast<double>(promotion) / 256;
        return over == SumOver::features ? 1e-3 * std::sqrt(interval) : 4e-3 * interval * interval;
    }
    const auto terms = static_cast<double>(k);
    return k <= 4096 ? 1.5e-3 : 3e-3 * std::fmax(1.0, terms / 8192);
}
/// The same as a tolerance, for a result in fp32 or rounded once to bf16.
inline Tolerance f8_product_tolerance(std::int64_t k, std::int64_t promotion, SumOver over, bool rounded) {
    const double sum = f8_product_error(k, promotion, over) + (rounded ? 2.3e-3 : 0);
    return {sum, 4 * sum};
}
/// The tolerance of a GEMM over features that promotes nothing.
inline Tolerance f8_product_tolerance(std::int64_t k, bool rounded) {
    return f8_product_tolerance(k, 0, SumOver::features, rounded);
}

}  // namespace coda
