// The Hopper executor: prepares an op once, launches it any number of times. Host.
#pragma once

#include "kernels/hopper/plan.h"
#include "kernels/ops.h"

namespace coda::hopper {

/// choose and bind (plan.h) for the op that the variant holds.
Plan choose(const Op& op, const Request& request = {});
Launch bind(const Op& op, const Plan& plan, const Memory& memory);

/// Both at once.
Launch prepare(const Op& op, const Memory& memory, const Request& request = {});

}  // namespace coda::hopper
