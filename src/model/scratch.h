// Scratch operands of the steps that were issued.
#pragma once

#include <vector>

#include "kernels/ops.h"
#include "src/core/buffers.h"

namespace coda {

/// Gives every op that needs scratch (scratch_bytes(), kernels/core/op.h) its operand. Ops of a type run one after the
/// other, so one buffer of the largest size serves them all, in all of the schedules.
void add_scratch(BufferTable& buffers, const std::vector<Schedule*>& schedules);

}  // namespace coda
