// The forms of wgmma that attention needs and wgmma.cuh lacks: A from registers, and N of 64.
//
// A (64 x 16) from registers: lane l of warp w holds, in order, the pairs (row, k) = (16 w + l / 4, 2 (l % 4)), the
// same 8 rows on, then both at k + 8. That is how an fp32 accumulator holds 16 of its columns, so the result
// of one GEMM only has to be rounded to become the operand of the next.
#pragma once

#include <cstdint>

#include "kernels/hopper/ptx/wgmma.cuh"

namespace coda::hopper::ptx {

#define CODA_ACCUMULATORS_8(i)                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define CODA_ACCUMULATORS_32(i) \
    CODA_ACCUMULATORS_8(i), CODA_ACCUMULATORS_8(i + 8), CODA_ACCUMULATORS_8(i + 16), CODA_ACCUMULATORS_8(i + 24)

template <int kTransposeB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b,
                                             int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, keep, 1, 1, %38;\n}"
        : CODA_ACCUMULATORS_32(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransposeB));
}

template <int kTransposeB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[64], const std::uint32_t (&a)[4], std::uint64_t b,
                                             int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, keep, 1, 1, %70;\n}"
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransposeB));
}

template <int kTransposeA, int kTransposeB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[32], std::uint64_t a, std::uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, keep, 1, 1, %35, %36;\n}"
        : CODA_ACCUMULATORS_32(0)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
}

#undef CODA_ACCUMULATORS_32
#undef CODA_ACCUMULATORS_8

}  // namespace coda::hopper::ptx
