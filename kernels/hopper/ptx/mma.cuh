// mma.sync of bf16 with fp32 sums: D (16 x 8) += A (16 x 16) B (16 x 8).
//
// Of a warp's lanes, l holds of A the rows l / 4 and l / 4 + 8 at k = 2 (l % 4), + 1 in a[0] and a[1], and both at 8
// further on in a[2] and a[3]; of B column l / 4 at the same k in b[0] and b[1]; of D the rows as of A at columns
// 2 (l % 4), + 1.
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

}  // namespace coda::hopper::ptx
