// weight_gradient, FP8 factors - the wgrad of a linear layer from transposed codes, accumulated in fp32
//
//   grad (+)= undo dyᵀ x ⊙ gamma      (out, in), summed over all tokens; dyᵀ (out, M) and xᵀ (in, M) are the operands
//
// wgmma reads FP8 K-major only, and K counts tokens here. Their order within the copies is the same in both.
#include "kernels/ops/weight_gradient/in_parts.cuh"

namespace coda::hopper {

namespace {

template <class... Tiles>
using KernelsOf = Kernels<ScaledStore, Major::k, Major::k, Tiles...>;

/// Calls fn with the kernels for the op's dy.
template <class Fn>
auto with_kernels(const WeightGradient& op, const Fn& fn) {
    if (op.dy.dtype == DType::f8e5m2) return fn(OfF8GradientTiles<KernelsOf, DType::f8e5m2>{});
    return fn(OfF8GradientTiles<KernelsOf, DType::f8e4m3>{});
}

Problem problem_of(const WeightGradient& op) {
    const Problem problem = weight_gradient_problem(op.name, op.dy, op.x);
    require_operand(op.name, "dy", op.dy, problem.m, problem.k, op.dy.dtype, op.dy.order);
    require_operand(op.name, "x", op.x, problem.n, problem.k, DType::f8e4m3, op.dy.order);
    require_operand(op.name, "grad", op.grad, problem.m, problem.n, DType::f32);
    if (op.gamma) require_operand(op.name, "gamma", op.gamma, 1, problem.n, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const WeightGradient& op, const Request& request) {
    return with_kernels(op,
                        [&]<class Kernels>(Kernels) { return choose_in_parts<Kernels>(op, problem_of(op), request); });
}

template <>
Launch bind_f8(const WeightGradient& op, const Plan& plan, const Memory& memory) {
    return with_kernels(op, [&]<class Kernels>(Kernels) {
        return bind_in_parts<Kernels>(op, problem_of(op), plan, memory,
                                      {memory.at<float>(op.x.undo), memory.at<float>(op.gamma)});
    });
}

}  // namespace coda::hopper
