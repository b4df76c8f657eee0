// Eight numbers of 4 bits in a word, in two's complement, as 8-bit integers: 16 times each.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// Of the low and of the high halves of the bytes.
__device__ __forceinline__ std::uint32_t low_codes(std::uint32_t codes) { return codes << 4 & 0xf0f0f0f0u; }
__device__ __forceinline__ std::uint32_t high_codes(std::uint32_t codes) { return codes & 0xf0f0f0f0u; }
inline constexpr float kCodeFactor = 16;

}  // namespace coda::hopper::ptx
