// Signals without waiting: between warpgroups (named barriers), and between CTAs (a number in global memory).
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// This warp's threads arrive at a named barrier that others wait for.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// The same at barrier kFirst or, where `second`, at the one after it; `second` is equal in all lanes. Constant barrier
/// numbers take no register, and kernels that keep accumulators have none to spare.
template <int kFirst, int kThreads>
__device__ __forceinline__ void named_barrier_arrive_either(int second) {
    asm volatile(
        "{\n"
        ".reg .pred second;\n"
        "setp.ne.s32 second, %0, 0;\n"
        "@!second barrier.arrive.aligned %1, %3;\n"
        "@second barrier.arrive.aligned %2, %3;\n"
        "}" ::"r"(second),
        "n"(kFirst), "n"(kFirst + 1), "n"(kThreads)
        : "memory");
}

__device__ __forceinline__ int load_acquire(const int* address) {
    int value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(int* address, int value) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// Orders ordinary accesses of this thread with TMA's accesses, in all memories.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace coda::hopper::ptx
