// mma.sync: D (16 x 8) += A B, of bf16 with fp32 sums, A (16 x 16), and of 8-bit integers with sums of 32 bits, A (16 x
// 32).
//
// bf16: lane l of a warp holds, with r = l / 4 and c = 2 (l % 4):
//   A   rows r (a0) and r + 8 (a1) at k = c and c + 1; the same rows (a2, a3) at k = c + 8 and c + 9
//   B   column r at k = c and c + 1 (b0), and at k = c + 8 and c + 9 (b1)
//   D   rows r (d[0], d[1]) and r + 8 (d[2], d[3]) at columns c and c + 1
// Integers: the same with 4 (l % 4) to 3 further on in place of c and c + 1, and 16 in place of 8 between k's.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                             std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k32(int (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                             std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace coda::hopper::ptx
