// The FP8 form of Linear on Hopper, which hopper.cu hands over. Host.
#pragma once

#include "kernels/hopper/plan.h"
#include "kernels/ops/linear/op.h"

namespace coda::hopper {

/// choose and bind for an op whose `a` is FP8. Errors as theirs.
Plan choose_f8(const Linear& op, const Request& request);
Launch bind_f8(const Linear& op, const Plan& plan, const Memory& memory);

}  // namespace coda::hopper
