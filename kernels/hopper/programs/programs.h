// The ops that are one GEMM with an epilogue program, each in its own file.
#pragma once

#include "kernels/hopper/gemm/choice.h"
#include "kernels/hopper/run.h"

namespace coda::hopper {

Launch prepare_op(const Linear& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearRope& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearSwiglu& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearCrossEntropy& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearResidualRms& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearRmsBackward& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearSwigluBackward& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const LinearHeadDot& op, const Memory& memory, const GemmChoice& choice = {});
Launch prepare_op(const WeightGradient& op, const Memory& memory, const GemmChoice& choice = {});

}  // namespace coda::hopper
