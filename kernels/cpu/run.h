// The CPU executor: every op in plain loops, for storage f64, f32 and bf16 (the GPU's rounding points). Tests compare
// the Hopper kernels with it, CI runs it, and it is the default on machines without a GPU.
#pragma once

#include "kernels/core/memory.h"
#include "kernels/ops.h"

namespace coda::cpu {

/// Executes `op` on buffers in host memory, with all OpenMP threads. Any number of threads gives the same bits.
/// Throws Error, naming the op, the operand and both shapes or dtypes, where operands do not fit together.
void run(const Op& op, const Memory& memory);

}  // namespace coda::cpu
