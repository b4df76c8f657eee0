// wgmma: the asynchronous matrix multiply-accumulate of a warpgroup, bf16 operands in shared memory, fp32 accumulators.
//
// d (64 x N, N = 2 * registers) = a (64 x 16) b (16 x N) + (accumulate ? d : 0). Transpose flags: 0 for a K-major
// operand, 1 for an MN-major one. The registers of d belong to the tensor cores until wgmma_wait has returned.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// Orders this thread's register accesses before the next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving accesses of an accumulator across this point.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// NOTE: an asm statement needs every accumulator as an operand of its own; these spell 32 of them.
#define CODA_ACCUMULATORS_8(i)                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define CODA_ACCUMULATORS_32(i) \
    CODA_ACCUMULATORS_8(i), CODA_ACCUMULATORS_8(i + 8), CODA_ACCUMULATORS_8(i + 16), CODA_ACCUMULATORS_8(i + 24)

template <int kTransposeA, int kTransposeB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[64], std::uint64_t a, std::uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, keep, 1, 1, %67, %68;\n}"
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
}

template <int kTransposeA, int kTransposeB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[96], std::uint64_t a, std::uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, keep, 1, 1, %99, %100;\n}"
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32), CODA_ACCUMULATORS_32(64)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
}

template <int kTransposeA, int kTransposeB>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[128], std::uint64_t a, std::uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, keep, 1, 1, %131, %132;\n}"
        : CODA_ACCUMULATORS_32(0), CODA_ACCUMULATORS_32(32), CODA_ACCUMULATORS_32(64), CODA_ACCUMULATORS_32(96)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
}

#undef CODA_ACCUMULATORS_32
#undef CODA_ACCUMULATORS_8

}  // namespace coda::hopper::ptx
