// The fused decode kernel on the stream of an executor.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/memory.h"
#include "kernels/ops.h"
#include "src/engine/decode_launches.h"

namespace coda {

/// `decode`: the list of Pass::decode, whose operands lie in `memory`. Both and the stream must outlive the launches.
DecodeLaunchesOffer offer_decode_launches(const Schedule& decode, const Memory& memory, double watchdog_seconds,
                                          cudaStream_t stream);

}  // namespace coda
