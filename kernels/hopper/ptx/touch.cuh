// Brings a line of global memory to L1, for a later load.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// A load that nobody waits for.
__device__ __forceinline__ void touch(const void* address) {
    asm volatile("{\n.reg .b32 unused;\nld.global.ca.b32 unused, [%0];\n}" ::"l"(address));
}

}  // namespace coda::hopper::ptx
