// Shared memory of another CTA of the cluster: stores that its barrier counts, and the end of such stores. Addresses
// are shared::cluster addresses.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// Where the same place is in CTA `rank`.
__device__ __forceinline__ std::uint32_t remote_address(std::uint32_t shared, std::uint32_t rank) {
    std::uint32_t remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
    return remote;
}

/// 16 bytes, at a multiple of 16. Their arrival counts as 16 of the bytes that `barrier` of the same CTA expects.
__device__ __forceinline__ void store_remote(std::uint32_t address, const uint4& value, std::uint32_t barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
        : "memory");
}
/// The same of 4 bytes.
__device__ __forceinline__ void store_remote(std::uint32_t address, float value, std::uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
                 "r"(__float_as_uint(value)), "r"(barrier)
                 : "memory");
}

/// cluster_sync() where the threads of a warp come one by one. A thread that has exited is not waited for.
__device__ __forceinline__ void cluster_sync_each() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

}  // namespace coda::hopper::ptx
