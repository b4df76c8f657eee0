// weight_gradient, FP8 factors - the wgrad of a linear layer from transposed codes, accumulated in fp32
//
//   grad (+)= undo dyᵀ x ⊙ gamma      (out, in), summed over all tokens; dyᵀ (out, M) and xᵀ (in, M) are the operands
//
// wgmma reads FP8 K-major only, and K counts tokens here. Their order within the copies is the same in both. The sum
// is not cut into parts: in FP8 its tiles are smaller, so that few gradients leave SMs idle.
#include "kernels/hopper/epilogue/scaled_store.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/weight_gradient/op.h"

namespace coda::hopper {

namespace {

/// The kernels for a dy of the format kA.
template <DType kA, int kPromotion = kPromotionOverTokens>
using Promoted =
    Kernels<ScaledStore, Major::k, Major::k, tiles::F8<tiles::PromotedNarrow, kPromotion, kA>,
            tiles::F8<tiles::PromotedSmall, kPromotion, kA>, tiles::F8<tiles::PromotedShared, kPromotion, kA>>;

/// Calls fn with the kernels that the op needs.
template <class Fn>
auto with_kernels(const WeightGradient& op, const Fn& fn) {
    if (op.dy.dtype == DType::f8e5m2) return fn(Promoted<DType::f8e5m2>{});
    return fn(Promoted<DType::f8e4m3>{});
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
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem, request); });
}

template <>
Launch bind_f8(const WeightGradient& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    const ScaledStore::Arguments arguments{memory.at<float>(op.x.undo), memory.at<float>(op.gamma)};
    const std::uint32_t add = op.grad.beta == Beta::accumulate ? 1u : 0u;
    return with_kernels(op, [&](auto kernels) {
        return kernels.bind(problem, plan, memory, {{}, {op.grad}, add}, arguments);
    });
}

}  // namespace coda::hopper
