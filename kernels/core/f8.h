// The two FP8 types as host and device code see them: exact values of all codes, and rounding to nearest, ties to even,
// to the largest finite number where the value is beyond it (satfinite). NaN becomes code 0x7f. The same bits as
// cvt.rn.satfinite.e4m3x2.f32 and .e5m2x2.f32.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda {

/// FP8 operands are read and transposed in groups of 16 elements, so their rows and columns are multiples of 16.
inline constexpr std::int64_t kF8Multiple = 16;

/// Storage of one sign bit, 7 - kMantissa bits of exponent and kMantissa bits of mantissa. kLargest is the code of the
/// largest finite number. Codes above it are NaN, but for the code of infinity, where kInfinity says that there is one.
template <int kMantissa, std::uint8_t kLargest, bool kInfinity>
struct F8Number {
    std::uint8_t bits = 0;

    F8Number() = default;
    CODA_HD explicit F8Number(float value) : bits(encode(value)) {}
    CODA_HD operator float() const { return decode(bits); }

    static constexpr int kLargestCode = kLargest;
    static CODA_HD float largest() { return decode(kLargest); }

  private:
    static constexpr int kBias = (1 << (6 - kMantissa)) - 1;
    static constexpr int kDropped = 23 - kMantissa;  // bits of a float's mantissa

    static CODA_HD float decode(std::uint8_t code) {
        const std::uint32_t magnitude = code & 0x7fu;
        float value = 0;
        if (magnitude > kLargest) {
            const bool infinite = kInfinity && magnitude == kLargest + 1u;
            value = std::bit_cast<float>(infinite ? 0x7f800000u : 0x7fc00000u);
        } else if (magnitude >> kMantissa == 0) {  // 0 and denormal numbers: multiples of the smallest
            value = static_cast<float>(magnitude) * power_of_two(1 - kBias - kMantissa);
        } else {
            value = std::bit_cast<float>((magnitude << kDropped) + (static_cast<std::uint32_t>(127 - kBias) << 23));
        }
        return code & 0x80 ? -value : value;
    }

    static CODA_HD std::uint8_t encode(float value) {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t magnitude = word & 0x7fffffffu, sign = word >> 24 & 0x80u;
        if (magnitude > 0x7f800000u) return 0x7f;
        std::uint32_t code = 0;
        if (magnitude < static_cast<std::uint32_t>(128 - kBias) << 23) {
            // Below the smallest normal number, all codes are equally far apart: the addition rounds at their distance.
            const float unit = power_of_two(1 - kBias - kMantissa + 23);
            code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + unit) -
                   std::bit_cast<std::uint32_t>(unit);
        } else {
            const std::uint32_t half = (1u << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1u);
            code = ((magnitude + half) >> kDropped) - (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
        }
        return static_cast<std::uint8_t>(sign | (code < kLargest ? code : kLargest));
    }

    static CODA_HD float power_of_two(int exponent) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
    }
};

using F8E4M3 = F8Number<3, 0x7e, false>;
using F8E5M2 = F8Number<2, 0x7b, true>;
static_assert(sizeof(F8E4M3) == 1 && sizeof(F8E5M2) == 1);

template <>
struct DTypeOf<F8E4M3> {
    static constexpr DType value = DType::f8e4m3;
};
template <>
struct DTypeOf<F8E5M2> {
    static constexpr DType value = DType::f8e5m2;
};

/// fn(F8E4M3()) or fn(F8E5M2()).
template <class Fn>
CODA_HD auto with_f8(DType dtype, const Fn& fn) {
    return dtype == DType::f8e4m3 ? fn(F8E4M3()) : fn(F8E5M2());
}

}  // namespace coda
