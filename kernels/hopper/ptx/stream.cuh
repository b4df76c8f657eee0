// Bulk copies of what is read once per pass over much more than the L2 cache holds: its lines are the first to go.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ std::uint64_t evict_first_policy() {
    std::uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void bulk_stream(std::uint32_t destination, const void* source, std::uint32_t bytes,
                                            std::uint32_t barrier, std::uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(destination),
        "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

/// A box of a tensor map of rank 3, which lies in global memory.
__device__ __forceinline__ void tensor_stream(std::uint32_t destination, const void* map, int x, int y, int z,
                                              std::uint32_t barrier, std::uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
        : "memory");
}

/// Once per CTA, before it uses a map that others have written.
__device__ __forceinline__ void acquire_map(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
__device__ __forceinline__ void prefetch_map(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace coda::hopper::ptx
