// The second kernel of a wgrad in parts. Host.
#pragma once

#include "kernels/core/memory.h"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/hopper/plan.h"

namespace coda::hopper {

/// grad (+)= Σ parts, in their order. There are plan.splits parts, fp32 (M, N), and plan.split_rows rows from one to
/// the next. Throws Error where grad does not start at, or has rows of, multiples of 16 bytes.
Launch sum_parts(const Problem& problem, const Plan& plan, const View& grad, bool accumulate, const View& parts,
                 const Memory& memory);

}  // namespace coda::hopper
