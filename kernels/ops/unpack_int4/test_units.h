// Units of 4-bit integers for tests, stated without kernels/math/int4.h: of 16 rows and 128 columns, 256 words of codes
// and 8 of scales.
#pragma once

#include <random>

#include "tests/kernels/fixture.h"

namespace coda::test {

inline constexpr std::int64_t kUnitRows = 16, kUnitColumns = 128, kUnitWords = 264, kUnitCodeWords = 256;

/// Random codes. Scales are random finite bf16 of either sign, and one in four is 0, -0, subnormal, or so large that
/// products with it overflow fp32.
inline View random_units(Buffers& buffers, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
    constexpr std::uint32_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x8041, 0x7c33, 0xfc33, 0x7f7f, 0xff7f};
    const std::int64_t width = columns / kUnitColumns * kUnitWords;
    const View units = buffers.matrix(DType::i32, rows / kUnitRows, width, width + gap);
    std::mt19937 random(static_cast<std::uint32_t>(rows + columns));
    const auto scale = [&] {
        const std::uint32_t bits = random() >> 16;
        if (random() % 4 == 0) return kSpecial[random() % std::size(kSpecial)];
        return (bits & 0x7f80u) == 0x7f80u ? bits ^ 0x4000u : bits;  // infinite or NaN otherwise
    };
    for (std::int64_t row = 0; row < units.rows; ++row)
        for (std::int64_t word = 0; word < width; ++word) {
            std::uint32_t bits = random();
            if (word % kUnitWords >= kUnitCodeWords) {
                bits = scale();
                bits |= scale() << 16;
            }
            buffers.set(units, row, word, static_cast<std::int32_t>(bits));
        }
    return units;
}

}  // namespace coda::test
