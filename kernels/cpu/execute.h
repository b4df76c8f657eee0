// The CPU executor's entry of an op. Each op's folder specialises it, so an op without one does not link.
#pragma once

#include "kernels/core/memory.h"

namespace coda::cpu {

/// Checks the operands, picks the storage type, runs.
template <class Op>
void execute(const Op& op, const Memory& memory);

}  // namespace coda::cpu
