// weight_gradient - the gradient of a linear layer's weight, accumulated in fp32
//
//   grad (+)= alpha dyᵀ x              (out, in), summed over all tokens
//
// Both operands are read as they lie in memory, with K (the tokens) along their rows: MN-major.
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"
#include "kernels/hopper/programs/scaled_store.cuh"

namespace coda::hopper {

Launch prepare_op(const WeightGradient& op, const Memory& memory) {
    const Problem problem = weight_gradient_problem(op.name, op.dy, op.x);
    require_shape(problem, "grad", op.grad, problem.m, problem.n, DType::f32);
    const Tiles<ScaledStore> operands{{}, {op.grad}, op.grad.beta == Beta::accumulate ? 1u : 0u};
    const ScaledStore::Arguments arguments{memory.at<float>(op.alpha)};

    return launch_quickest<ScaledStore, Major::mn, Major::mn, tiles::GradientWide, tiles::GradientNarrow>(
        problem, memory, operands, arguments);
}

}  // namespace coda::hopper
