// A limit for the compiler's scheduler.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

/// Ends a basic block. Instructions are scheduled within a block, and a long one keeps as many results in registers as
/// there are. `address` is one of shared memory beyond its first byte: at 0, which it never is, the thread would exit.
__device__ __forceinline__ void end_basic_block(std::uint32_t address) {
    asm volatile("{\n.reg .pred never;\nsetp.eq.u32 never, %0, 0;\n@never exit;\n}" ::"r"(address));
}

}  // namespace coda::hopper::ptx
