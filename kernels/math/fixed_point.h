// Groups of numbers as integers of 16 bits with a power of two as their scale, in two pieces of 8 bits: what integer
// MMAs take in place of bf16. Host and device.
//
//   x = from X, X = round(to x) = 256 high + low, high and low in [-128, 127]
//
// `to` is the largest power of two with which no |X| of the group is above kLargestFixed. The largest |X| is then at
// least 16320, and a number is off by 1 / 32640 of the group's largest one or less. Integer MMAs add exactly, in any
// order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda {

inline constexpr int kLargestFixed = 127 * 257;

struct FixedPoint {
    float to, from;
};

/// Of a group by its largest magnitude. `from` is NaN where that is infinite, NaN or 2^128 (1 - 2^-8) or more.
CODA_HD FixedPoint fixed_point_of(float largest) {
    // X of a number with exponent e is to have 15 bits: 2^(14 - e). Mantissas that would round to more than the largest
    // integer count as the next exponent's: 2 - (kLargestFixed + 1/2) / 2^14 carries.
    constexpr std::uint32_t kCarry = (1u << 24) - (2 * kLargestFixed + 1) * (1u << 8);
    constexpr std::uint32_t kBias = 127, kLeast = 15;  // 2^-126 is the least normal number
    const std::uint32_t found = (std::bit_cast<std::uint32_t>(largest) + kCarry) >> 23,
                        exponent = found < kLeast ? kLeast : found;
    const std::uint32_t to = kBias + 14 + kBias - exponent, from = exponent - 14;
    return {std::bit_cast<float>(to << 23),
            found > 2 * kBias ? std::bit_cast<float>(0x7fc00000u) : std::bit_cast<float>(from << 23)};
}

/// Four numbers' pieces, a byte each, the first one's in the lowest.
struct Pieces {
    std::uint32_t high, low;
};

/// Bytes of a (0 to 3) and b (4 to 7), by the digits of the selector, the lowest byte by the last digit.
CODA_HD std::uint32_t select_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, selector);
#else
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    std::uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i)
        bytes |= static_cast<std::uint32_t>(both >> (8 * (selector >> (4 * i) & 7u)) & 255u) << (8 * i);
    return bytes;
#endif
}

CODA_HD Pieces pieces_of(const float (&x)[4], float to) {
    // As the last bits of 1.5 2^23 + 128, X + 128 is rounded, and its second byte is `high`. Its first is low + 128.
    constexpr float kShift = 0x1.8p23f + 128;
    std::uint32_t bits[4];
    for (int i = 0; i < 4; ++i) bits[i] = std::bit_cast<std::uint32_t>(std::fma(x[i], to, kShift));
    const std::uint32_t first = select_bytes(bits[0], bits[1], 0x5140), second = select_bytes(bits[2], bits[3], 0x5140);
    return {select_bytes(first, second, 0x7632), select_bytes(first, second, 0x5410) ^ 0x80808080u};
}

}  // namespace coda
