// wgmma of FP8 operands in shared memory: d (64 x N) = a (64 x 32) b (32 x N) + (accumulate ? d : 0), fp32 accumulators
// of which the tensor cores keep about 14 bits in a sum. Both operands are K-major; the types may differ.
#pragma once

#include <cstdint>

#include "kernels/hopper/ptx/wgmma.cuh"

namespace coda::hopper::ptx {

#define CODA_ACCUMULATORS_8(i)                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define CODA_ACCUMULATORS_32(i) \
    CODA_ACCUMULATORS_8(i), CODA_ACCUMULATORS_8(i + 8), CODA_ACCUMULATORS_8(i + 16), CODA_ACCUMULATORS_8(i + 24)

#define CODA_WGMMA_N128(types)                                                               \
    asm volatile(                                                                            \
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n"                                   \
        "wgmma.mma_async.sync.aligned.m64n128k32.f32." types                                 \
        " "                                                                                  \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
        "%64, %65, keep, 1, 1;\n}"                                                           \
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32)                                  \
        : "l"(a), "l"(b), "r"(accumulate))
template <bool kE5M2A, bool kE5M2B>
__device__ __forceinline__ void wgmma_m64k32(float (&d)[64], std::uint64_t a, std::uint64_t b, int accumulate) {
    static_assert(!kE5M2B, "only A, a gradient, may be e5m2");
    if constexpr (kE5M2A) {
        CODA_WGMMA_N128("e5m2.e4m3");
    } else {
        CODA_WGMMA_N128("e4m3.e4m3");
    }
}
#undef CODA_WGMMA_N128

#define CODA_WGMMA_N192(types)                                                               \
    asm volatile(                                                                            \
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %98, 0;\n"                                   \
        "wgmma.mma_async.sync.aligned.m64n192k32.f32." types                                 \
        " "                                                                                  \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "  \
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "  \
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, " \
        "%96, %97, keep, 1, 1;\n}"                                                           \
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32), CODA_ACCUMULATORS_32(64)        \
        : "l"(a), "l"(b), "r"(accumulate))
template <bool kE5M2A, bool kE5M2B>
__device__ __forceinline__ void wgmma_m64k32(float (&d)[96], std::uint64_t a, std::uint64_t b, int accumulate) {
    static_assert(!kE5M2B, "only A, a gradient, may be e5m2");
    if constexpr (kE5M2A) {
        CODA_WGMMA_N192("e5m2.e4m3");
    } else {
        CODA_WGMMA_N192("e4m3.e4m3");
    }
}
#undef CODA_WGMMA_N192

#define CODA_WGMMA_N256(types)                                                                                  \
    asm volatile(                                                                                               \
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %130, 0;\n"                                                     \
        "wgmma.mma_async.sync.aligned.m64n256k32.f32." types                                                    \
        " "                                                                                                     \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                               \
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                     \
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                     \
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                     \
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                     \
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                     \
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "         \
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "    \
        "%128, %129, keep, 1, 1;\n}"                                                                            \
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32), CODA_ACCUMULATORS_32(64), CODA_ACCUMULATORS_32(96) \
        : "l"(a), "l"(b), "r"(accumulate))
template <bool kE5M2A, bool kE5M2B>
__device__ __forceinline__ void wgmma_m64k32(float (&d)[128], std::uint64_t a, std::uint64_t b, int accumulate) {
    static_assert(!kE5M2B, "only A, a gradient, may be e5m2");
    if constexpr (kE5M2A) {
        CODA_WGMMA_N256("e5m2.e4m3");
    } else {
        CODA_WGMMA_N256("e4m3.e4m3");
    }
}
#undef CODA_WGMMA_N256

#undef CODA_ACCUMULATORS_32
#undef CODA_ACCUMULATORS_8

}  // namespace coda::hopper::ptx
