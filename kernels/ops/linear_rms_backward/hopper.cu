// linear_rms_backward - dgrad of a projection and the backward pass of the norm before it (K9)
//
//   t      = of_acc acc, acc = a w     (M, N), w (K, N); of_acc, of_x, of_n: factors per row (math/rms.h)
//   dx     (+)= t - of_x x             (M, N) bf16    gradient of the residual stream
//   n      = of_n x                    (M, N) bf16    normalised activation, for the LM head's wgrad
//   dx_sum = Σ dx over 64 rows         (M / 64, N) fp32, of the new dx before rounding, where it is asked for
//   without a norm: rstd 1, dot 0 and no dgamma
//   dgamma = Σ t x over 64 rows        (M / 64, N) fp32    times the norm's weight, which w carries in its columns
//
// K is summed from its end. Tensor cores cut each term at the accumulator's last bit, so small terms must come first.
// Where K is a vocabulary, rare tokens have the small terms and the high numbers.
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_rms_backward/op.h"
#include "kernels/ops/linear_rms_backward/program.cuh"

namespace coda::hopper {

namespace {

template <class Medium, bool kMakesN, bool kSumsDx, bool kNormed = true>
using RmsBackwardKernels = Kernels<RmsBackward<kMakesN, RmsBackwardSlot, kSumsDx, kNormed>, Major::k, Major::mn,
                                   tiles::RmsBackward, Medium, tiles::RmsBackwardWide>;

/// Calls fn with the kernels of the variant that makes the optional results of the op.
template <class Fn>
auto with_kernels(const LinearRmsBackward& op, const Fn& fn) {
    using Cooperative = tiles::RmsBackwardMediumCooperative;
    if (!op.rstd) return fn(RmsBackwardKernels<Cooperative, true, false, false>{});
    if (op.n && op.dx_sum) return fn(RmsBackwardKernels<Cooperative, true, true>{});
    if (op.n) return fn(RmsBackwardKernels<Cooperative, true, false>{});
    if (op.dx_sum) return fn(RmsBackwardKernels<Cooperative, false, true>{});
    return fn(RmsBackwardKernels<tiles::RmsBackwardMedium, false, false>{});
}

Problem problem_of(const LinearRmsBackward& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    if (op.n) require_operand(op.name, "n", op.n, problem.m, problem.n, DType::bf16);
    if (op.dx_sum) require_operand(op.name, "dx_sum", op.dx_sum, ceil_div(problem.m, op.tile), problem.n, DType::f32);
    if (op.scale) require_operand(op.name, "scale", op.scale, 1, problem.m, DType::f32);
    require_operands(op, problem);
    require(op.rstd || (op.n && !op.dx_sum), op.name, ": without a norm, the kernel makes n, and not dx_sum");
    require(op.n || !op.scale, op.name, ": with scale, the kernel makes n");
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearRmsBackward& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearRmsBackward& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    const View before = op.dx.beta == Beta::accumulate ? View(op.dx) : View{};
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        const RmsBackwardArguments arguments = arguments_of(op, problem, memory);
        const TileOperands<typename Kernels::Program> operands{{before, op.x}, {op.dx, op.n}};
        if constexpr (Kernels::Program::kSums)
            return kernels.bind(problem, plan, memory, operands, {arguments, memory.at<float>(op.dx_sum)});
        else
            return kernels.bind(problem, plan, memory, operands, arguments);
    });
}

}  // namespace coda::hopper
