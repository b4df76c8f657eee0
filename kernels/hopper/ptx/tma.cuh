// TMA: tiles between global and shared memory. One thread issues; coordinates are {column, row} of the tensor map;
// elements outside the tensor are zero on load and dropped on store.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// A policy for data that is used once: its lines leave L2 before others do.
__device__ __forceinline__ std::uint64_t evict_first_policy() {
    std::uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/// A policy for data that is used again after much else has passed: its lines leave L2 last.
__device__ __forceinline__ std::uint64_t evict_last_policy() {
    std::uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void tma_load(std::uint32_t destination, const CUtensorMap* map, int column, int row,
                                         std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            destination),
        "l"(map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void tma_load(std::uint32_t destination, const CUtensorMap* map, int column, int row,
                                         std::uint32_t barrier, std::uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
        "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
        : "memory");
}

/// The same tile to the same offset of every CTA in `cta_mask`, completing on the barrier at the same offset there.
__device__ __forceinline__ void tma_load_multicast(std::uint32_t destination, const CUtensorMap* map, int column,
                                                   int row, std::uint32_t barrier, std::uint16_t cta_mask,
                                                   std::uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(destination),
        "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(cta_mask), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, std::uint32_t source, int column, int row,
                                          std::uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3}], [%1], %4;" ::"l"(map),
        "r"(source), "r"(column), "r"(row), "l"(policy)
        : "memory");
}

/// Adds the tile to what is in global memory, in the tensor's type.
__device__ __forceinline__ void tma_reduce_add(const CUtensorMap* map, std::uint32_t source, int column, int row) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(source), "r"(column), "r"(row)
                 : "memory");
}

__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the newest `kPending` groups of this thread have read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace coda::hopper::ptx
