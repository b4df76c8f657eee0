// Counter-based random numbers: a (key, counter) gives the same bits on every device and in any order.
// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda {

struct Random4 {
    std::uint32_t word[4];
};

CODA_HD Random4 philox(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
    Random4 c{{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
               static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = 0xD2511F53ull * c.word[0];
        const std::uint64_t p1 = 0xCD9E8D57ull * c.word[2];
        c = Random4{{static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1] ^ k0, static_cast<std::uint32_t>(p1),
                     static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3] ^ k1, static_cast<std::uint32_t>(p0)}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/// Random bits of `element` for two stochastic roundings, one in each half. Elements 4 i to 4 i + 3 take the four words
/// of philox(key, stream, i).
CODA_HD std::uint32_t rounding_bits(std::uint64_t key, std::uint64_t stream, std::uint64_t element) {
    return philox(key, stream, element / 4).word[element % 4];
}

/// `value` as bf16 bits, rounded up or down with a probability that makes the expectation exact: adds the lower 16 bits
/// of `random` below the bits that are kept. Not for NaN or infinity.
CODA_HD std::uint16_t stochastic_bf16(float value, std::uint32_t random) {
    return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + (random & 0xffffu)) >> 16);
}

}  // namespace coda
