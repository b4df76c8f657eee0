// The ops that are no GEMM and no attention: the embedding and its gradient, finishing reductions, the targets' logits
// and the loss, the optimizer. Host.
#pragma once

#include "kernels/hopper/run.h"

namespace coda::hopper {

Launch prepare_op(const Embed& op, const Memory& memory);
Launch prepare_op(const TargetLogit& op, const Memory& memory);
Launch prepare_op(const FinishRstd& op, const Memory& memory);
Launch prepare_op(const FinishRowSum& op, const Memory& memory);
Launch prepare_op(const FinishColumnSum& op, const Memory& memory);
Launch prepare_op(const FinishCrossEntropy& op, const Memory& memory);
Launch prepare_op(const ReduceLoss& op, const Memory& memory);
Launch prepare_op(const EmbedBackward& op, const Memory& memory);
Launch prepare_op(const Zero& op, const Memory& memory);
Launch prepare_op(const GradNorm& op, const Memory& memory);
Launch prepare_op(const AdamW& op, const Memory& memory);

}  // namespace coda::hopper
