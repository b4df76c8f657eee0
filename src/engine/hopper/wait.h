// Waiting for a GPU.
#pragma once

#include <cuda_runtime.h>

namespace coda {

inline constexpr double kPatience = 20;  // seconds

/// Waits for an event. `for_ranks`: its stream may be waiting for other ranks. If this process was asked to stop
/// kPatience ago and the event has still not come, the process ends with a message.
void wait_for(cudaEvent_t event, bool for_ranks);

}  // namespace coda
