// TMA on tensors of rank 3 (coordinates {column, row, sequence}), and bulk copies of plain runs of bytes, which start
// at multiples of 16 bytes and have multiples of 16 bytes.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ void tma_load(std::uint32_t destination, const CUtensorMap* map, int column, int row,
                                         int sequence, std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
            "r"(destination),
        "l"(map), "r"(column), "r"(row), "r"(sequence), "r"(barrier)
        : "memory");
}

/// Brings a box into L2.
__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map, int column, int row, int sequence) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(column),
                 "r"(row), "r"(sequence)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, std::uint32_t source, int column, int row,
                                          int sequence) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(source), "r"(column), "r"(row), "r"(sequence)
                 : "memory");
}

__device__ __forceinline__ void bulk_load(std::uint32_t destination, const void* source, std::uint32_t bytes,
                                          std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
        "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void bulk_store(void* destination, std::uint32_t source, std::uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source),
                 "r"(bytes)
                 : "memory");
}

/// Adds fp32 values to global memory, each atomically.
__device__ __forceinline__ void bulk_add(float* destination, std::uint32_t source, std::uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
                 "r"(source), "r"(bytes)
                 : "memory");
}

/// Waits until all groups of this thread have finished: their writes are visible to it.
__device__ __forceinline__ void bulk_wait_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace coda::hopper::ptx
