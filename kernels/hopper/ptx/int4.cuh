// Two numbers of 4 bits, in the low and the high half of a word, as two bf16.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// code - 8 of the codes in the lowest bits of each half: as the last bits of 128 a code c makes 128 + c. Exact.
__device__ __forceinline__ std::uint32_t numbers_of(std::uint32_t codes) {
    std::uint32_t pair;
    asm("{\n"
        ".reg .b32 number;\n"
        "lop3.b32 number, %1, 0x000f000f, 0x43004300, 0xea;\n"  // (a & b) | c
        "sub.rn.bf16x2 %0, number, %2;\n"
        "}"
        : "=r"(pair)
        : "r"(codes), "r"(0x43084308u));  // 136
    return pair;
}

}  // namespace coda::hopper::ptx
