// The FP8 form of WeightGradient on Hopper, which hopper.cu hands over. Host.
#pragma once

#include "kernels/hopper/plan.h"
#include "kernels/ops/weight_gradient/op.h"

namespace coda::hopper {

/// choose and bind for an op whose `dy` is FP8. Errors as theirs.
Plan choose_f8(const WeightGradient& op, const Request& request);
Launch bind_f8(const WeightGradient& op, const Plan& plan, const Memory& memory);

}  // namespace coda::hopper
