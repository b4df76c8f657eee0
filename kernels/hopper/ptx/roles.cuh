// Register budgets of warpgroups, named barriers, and one elected lane.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// threadIdx.x, read again at every call: what derives from it need not be kept in registers between calls.
__device__ __forceinline__ int thread_index() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

/// setmaxnreg: sets the registers per thread of a warpgroup, all of whose warps call it. increase_registers waits for
/// registers that another warpgroup of the CTA frees by decrease_registers.
template <int kRegisters>
__device__ __forceinline__ void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// True in exactly one lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
    std::uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred chosen;\n"
        "elect.sync _|chosen, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, chosen;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

}  // namespace coda::hopper::ptx
