// The ops that are no GEMM and no attention: finishing reductions, the loss and its gradient, RoPE's gradient. Host.
#pragma once

#include "kernels/hopper/run.h"

namespace coda::hopper {

Launch prepare_op(const FinishRstd& op, const Memory& memory);
Launch prepare_op(const FinishRowSum& op, const Memory& memory);
Launch prepare_op(const FinishColumnSum& op, const Memory& memory);
Launch prepare_op(const FinishCrossEntropy& op, const Memory& memory);
Launch prepare_op(const ReduceLoss& op, const Memory& memory);
Launch prepare_op(const CrossEntropyBackward& op, const Memory& memory);
Launch prepare_op(const RopeBackward& op, const Memory& memory);
Launch prepare_op(const Zero& op, const Memory& memory);

}  // namespace coda::hopper
