// weight_gradient - the wgrad of a linear layer, accumulated in fp32
//
//   grad (+)= alpha dyᵀ x ⊙ gamma      (out, in), summed over all tokens
//
// Both operands are read as they lie in memory, one row per k (a token): MN-major. A small gradient has fewer tiles
// than the GPU has SMs, so its sum over tokens is cut into parts: in_parts.cuh. FP8 operands: hopper_f8.cu.
#include "kernels/ops/weight_gradient/in_parts.cuh"

namespace coda::hopper {

namespace {

template <class... Tiles>
using KernelsOf = Kernels<ScaledStore, Major::mn, Major::mn, Tiles...>;
using GradientKernels = OfGradientTiles<KernelsOf>;

Problem problem_of(const WeightGradient& op) {
    const Problem problem = weight_gradient_problem(op.name, op.dy, op.x);
    require_operand(op.name, "grad", op.grad, problem.m, problem.n, DType::f32);
    if (op.gamma) require_operand(op.name, "gamma", op.gamma, 1, problem.n, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const WeightGradient& op, const Request& request) {
    return choose_in_parts<GradientKernels>(op, problem_of(op), request);
}

template <>
Launch bind(const WeightGradient& op, const Plan& plan, const Memory& memory) {
    return bind_in_parts<GradientKernels>(op, problem_of(op), plan, memory,
                                          {memory.at<float>(op.alpha), memory.at<float>(op.gamma)});
}

}  // namespace coda::hopper
