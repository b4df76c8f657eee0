// exp for inner loops: a branch-free formula that compilers vectorise in float and in double.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <numbers>

namespace coda::cpu {

template <class T>
struct ExponentialConstants;
template <>
struct ExponentialConstants<float> {
    using Bits = std::uint32_t;
    static constexpr float kLowest = -104.0f, kHighest = 89.0f;                 // outside: 0 or +inf after rounding
    static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // their sum; n kLn2High is exact
    static constexpr int kDegree = 7;                                           // remainder (ln2 / 2)^8 / 8! = 5e-9
};
template <>
struct ExponentialConstants<double> {
    using Bits = std::uint64_t;
    static constexpr double kLowest = -746.0, kHighest = 710.0;
    static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
    static constexpr int kDegree = 13;  // remainder (ln2 / 2)^14 / 14! = 4e-18
};

template <class T, int k>
constexpr T kInverseFactorial = kInverseFactorial<T, k - 1> / k;
template <class T>
constexpr T kInverseFactorial<T, 0> = 1;

/// Σ r^(k - 2) / k! over k = 2 .. degree, by Horner's rule.
template <class T, int degree, int k = 2>
[[gnu::always_inline]] inline T exponential_tail(T r) {
    if constexpr (k == degree)
        return kInverseFactorial<T, k>;
    else
        return exponential_tail<T, degree, k + 1>(r) * r + kInverseFactorial<T, k>;
}

/// exp(x) 2^-shift to within 2 units in the last place, subnormal results included. 0 at -inf, +inf on overflow; NaN
/// stays NaN. `shift` is 0 to 126, within the exponents of float.
template <class T, int shift = 0>
[[gnu::always_inline]] inline T exponential(T x) {
    using Constants = ExponentialConstants<T>;
    using Bits = typename Constants::Bits;
    constexpr int kMantissaBits = std::numeric_limits<T>::digits - 1;

    // x = n ln2 + r with |r| <= ln2 / 2. Adding 1.5 2^kMantissaBits leaves n in the low bits of the sum.
    constexpr T kShift = T(Bits(3) << (kMantissaBits - 1));
    const T shifted = x * T(1.44269504088896340736) + kShift;
    const T n = shifted - kShift;
    const T r = (x - n * Constants::kLn2High) - n * Constants::kLn2Low;
    const T mantissa = exponential_tail<T, Constants::kDegree>(r) * (r * r) + r + T(1);

    // 2^(n - shift) in two factors, as it may exceed the exponents of T. Unsigned arithmetic on n - shift + 2 kBias.
    constexpr Bits kBias = std::numeric_limits<T>::max_exponent - 1;
    const Bits biased = std::bit_cast<Bits>(shifted) - std::bit_cast<Bits>(kShift) + (2 * kBias - Bits(shift));
    const Bits half = biased / 2;
    const T value =
        mantissa * std::bit_cast<T>(half << kMantissaBits) * std::bit_cast<T>((biased - half) << kMantissaBits);

    // Limits as masks: with a conditional, compilers move the arithmetic into its branch and the loop stays scalar.
    constexpr T kOffset = T(shift * std::numbers::ln2);
    const Bits above = Bits(0) - static_cast<Bits>(x > Constants::kHighest + kOffset);
    const Bits below = Bits(0) - static_cast<Bits>(x < Constants::kLowest + kOffset);
    constexpr auto kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
    return std::bit_cast<T>((std::bit_cast<Bits>(value) & ~(above | below)) | (kInfinity & above));
}

/// 1 / (1 + exp(-x)).
template <class T>
[[gnu::always_inline]] inline T logistic(T x) {
    return T(1) / (T(1) + exponential(-x));
}

}  // namespace coda::cpu
