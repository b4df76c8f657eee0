// mbarrier for waits that look at something else in between, and for several arrivals at once. Also flags and counters
// in shared memory.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// Whether the phase of the given parity has completed; waits for it for a while.
__device__ __forceinline__ bool mbarrier_try_wait(std::uint32_t barrier, std::uint32_t parity) {
    std::uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void mbarrier_arrive_many(std::uint32_t barrier, std::uint32_t arrivals) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ std::uint32_t load_shared_acquire(std::uint32_t address) {
    std::uint32_t value;
    asm volatile("ld.acquire.cta.shared::cta.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void store_shared_release(std::uint32_t address, std::uint32_t value) {
    asm volatile("st.release.cta.shared::cta.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

}  // namespace coda::hopper::ptx
