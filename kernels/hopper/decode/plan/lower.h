// From the op list of a decode pass to the ops of the fused kernel. Host, without CUDA.
#pragma once

#include "kernels/core/memory.h"
#include "kernels/hopper/decode/plan/decode_plan.h"
#include "kernels/ops.h"

namespace coda::hopper::decode {

/// The ops that do what `schedule` says, a decode pass (src/model/generation.h):
///   Embed; per layer LinearRope, DecodeAttention, LinearResidualRms, FinishRstd, LinearSwiglu, LinearResidualRms,
///   FinishRstd; Linear; ChooseToken
/// for `grid` SMs. Before a GEMM stands UnpackInt4 where its weights are 4-bit integers: the kernel reads these
/// themselves. Results that only the next op reads (qkv, o, x, rstd, y, unpacked weights) are not stored: the
/// schedule's buffers of them keep what they have. Rows that do not run are idle: their lengths count as 0.
///
/// Throws Error, naming the step and its operand, where the list is not of this form or has sizes that the kernel does
/// not take: widths must be multiples of 16, heads / kv_heads at most 8, head_dim 64 or 128, sequences at most 16.
/// Where a sequence has several rows it has 2, 4 or 8 of the list's 3 to 8.
DecodePlan lower(const Schedule& schedule, const Memory& memory, int grid);

}  // namespace coda::hopper::decode
