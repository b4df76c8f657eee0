// Scratch operands of the steps that were issued.
#pragma once

#include <initializer_list>

#include "kernels/ops.h"
#include "src/core/buffers.h"

namespace coda {

/// Gives every op that needs scratch (scratch_bytes(), kernels/core/op.h) its operand. Ops of a type run one after the
/// other, so one buffer of the largest size serves them all, in all of the schedules.
void add_scratch(BufferTable& buffers, std::initializer_list<Schedule*> schedules);

}  // namespace coda
