// mbarrier: counted arrivals plus transaction bytes. Addresses are shared::cta addresses of 8-byte barriers.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to the other CTAs of the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival that also announces `bytes` that TMA will deliver.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// One arrival on the barrier at the same offset in CTA `rank` of the cluster. Releases at CTA scope only: ordinary
/// accesses of this thread are not published to the other CTA, which would cost a membar.gpu each time.
__device__ __forceinline__ void mbarrier_arrive_remote(std::uint32_t barrier, std::uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

/// Blocks until the phase of the given parity has completed. A fresh barrier counts as having completed parity 1.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT_%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra.uni DONE_%=;\n"
        "bra.uni WAIT_%=;\n"
        "DONE_%=:\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

}  // namespace coda::hopper::ptx
