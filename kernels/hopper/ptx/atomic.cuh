// Atomics on global memory whose result is wanted later: atomicAdd is compiled to wait for it at once, to share it
// among the lanes of a warp.
#pragma once

namespace coda::hopper::ptx {

__device__ __forceinline__ int fetch_add(int* address, int value) {
    int before;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
    return before;
}

}  // namespace coda::hopper::ptx
