// One function per op: checks operands, picks the storage type, runs. run.cpp dispatches to them.
#pragma once

#include "kernels/core/memory.h"
#include "kernels/ops.h"

namespace coda::cpu {

// gemm_programs*.cpp
void execute(const Linear& op, const Memory& memory);
void execute(const LinearRope& op, const Memory& memory);
void execute(const LinearSwiglu& op, const Memory& memory);
void execute(const LinearCrossEntropy& op, const Memory& memory);
void execute(const LinearResidualRms& op, const Memory& memory);
void execute(const LinearRmsBackward& op, const Memory& memory);
void execute(const LinearSwigluBackward& op, const Memory& memory);
void execute(const LinearHeadDot& op, const Memory& memory);
void execute(const WeightGradient& op, const Memory& memory);

// attention.cpp, attention_backward.cpp
void execute(const Attention& op, const Memory& memory);
void execute(const AttentionBackward& op, const Memory& memory);

// embedding.cpp, reductions.cpp, cross_entropy.cpp, optimizer.cpp
void execute(const Embed& op, const Memory& memory);
void execute(const EmbedBackward& op, const Memory& memory);
void execute(const Zero& op, const Memory& memory);
void execute(const FinishRstd& op, const Memory& memory);
void execute(const FinishRowSum& op, const Memory& memory);
void execute(const FinishColumnSum& op, const Memory& memory);
void execute(const TargetLogit& op, const Memory& memory);
void execute(const FinishCrossEntropy& op, const Memory& memory);
void execute(const ReduceLoss& op, const Memory& memory);
void execute(const GradNorm& op, const Memory& memory);
void execute(const AdamW& op, const Memory& memory);

}  // namespace coda::cpu
