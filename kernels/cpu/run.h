// The CPU executor: every op in plain loops, for storage f64, f32 and bf16 (the GPU's rounding points). It is the
// oracle of the Hopper kernels, what CI runs, and the default where there is no GPU.
#pragma once

#include "kernels/core/memory.h"
#include "kernels/ops.h"

namespace coda::cpu {

/// Executes `op` on buffers of host memory, on all threads of OpenMP. The same bits for any number of threads.
/// Throws Error naming the op, the operand and both shapes or dtypes when operands do not fit together.
void run(const Op& op, const Memory& memory);

}  // namespace coda::cpu
