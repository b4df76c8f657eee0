// Programmatic dependent launch: a kernel starts while its predecessor in the stream finishes.
//
// A kernel launched with cudaLaunchAttributeProgrammaticStreamSerialization must call wait_on_dependencies in every
// thread that touches global memory, before it does. As that waits for all of the predecessor, and the predecessor
// waited for its own, all work before it in the stream is done then. A kernel launched without the attribute needs
// nothing: it starts when all before it has completed.
#pragma once

namespace coda::hopper::ptx {

/// Blocks until the kernel before this one in the stream has completed and its memory is visible; returns at once in a
/// kernel that was launched without the attribute.
__device__ __forceinline__ void wait_on_dependencies() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Once every CTA of this kernel has called it, the next kernel in the stream may start on SMs that become free, if it
/// was launched with the attribute. Kernels call it after wait_on_dependencies. So the next kernel sees all earlier
/// results even before its own wait, except those of this kernel.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace coda::hopper::ptx
