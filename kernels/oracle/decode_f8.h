// FP8 matrices as bf16, which holds all their values exactly: cuBLASLt then multiplies them with fp32 accumulation,
// where its FP8 GEMMs keep about 14 bits of a sum. Host.
#pragma once

#include <cstdint>

#include "kernels/core/operand.h"
#include "kernels/hopper/sm90/launch.h"

namespace coda::oracle {

/// Writes rows [first, first + rows) of the FP8 matrix `view`, whose first element is at device address `data`, to
/// `out` in bf16, rows without gaps. Asynchronous.
void decode_f8(const View& view, const void* data, std::int64_t first, std::int64_t rows, void* out,
               hopper::Stream stream);

}  // namespace coda::oracle
