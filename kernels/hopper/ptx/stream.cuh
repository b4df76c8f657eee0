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

}  // namespace coda::hopper::ptx
