// Weight gradients of the first layers come last in a pass of several ranks.
//
// The embedding's gradient is final when the backward pass ends, and it is large: without more products its exchange
// would have nothing to hide behind. A weight gradient needs only values that stay, so it can wait until then.
#pragma once

#include "kernels/ops.h"

namespace coda {

inline constexpr int kLateLayers = 2;

/// Moves the weight gradients of the first kLateLayers layers to the end, the longest first, unless a step between
/// overwrites what one reads. What they read stays alive for longer: at the end of the backward pass, where the
/// activations of the other layers are gone, the arena hardly grows.
void put_products_last(Schedule& schedule);

}  // namespace coda
