// linear_rope - the q, k, v projection with the rotation of q and k (K1), after the norm's 1/rms (K7)
//
//   z   = acc rstd + bias                                      (M, Nq), rstd 1 and bias 0 where absent
//   n   = gain rho z, rho = 1/sqrt(mean z² + eps) of a head    q and k heads, with gain; z and rho are stored too
//   out = (u cos - v sin, v cos + u sin) on adjacent pairs     of the first `rotated` columns; v heads unchanged
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_rope/op.h"
#include "kernels/ops/linear_rope/program.cuh"

namespace coda::hopper {

namespace {

using LinearRopeKernels = Kernels<Rope, Major::k, Major::k, tiles::Rope, tiles::RopeSquare>;
using LinearBiasKernels = Kernels<Bias, Major::k, Major::k, tiles::Rope, tiles::Square>;
using LinearBiasRopeKernels = Kernels<BiasRope, Major::k, Major::k, tiles::Square>;
using LinearNormRopeKernels = Kernels<NormRope, Major::k, Major::k, tiles::Square>;

Problem problem_of(const LinearRope& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    require_operands(op, problem);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearRope& op, const Request& request) {
    if (op.gain) return LinearNormRopeKernels::choose(problem_of(op), request);
    if (!op.bias) return LinearRopeKernels::choose(problem_of(op), request);
    return op.rotated > 0 ? LinearBiasRopeKernels::choose(problem_of(op), request)
                          : LinearBiasKernels::choose(problem_of(op), request);
}

template <>
Launch bind(const LinearRope& op, const Plan& plan, const Memory& memory) {
    if (op.gain)
        return LinearNormRopeKernels::bind(problem_of(op), plan, memory, {{}, {op.out, op.pre}},
                                           norm_arguments_of(op, memory));
    if (op.bias && op.rotated == 0)
        return LinearBiasKernels::bind(problem_of(op), plan, memory, {{}, {op.out}},
                                       {memory.at<float>(op.rstd), memory.at<float>(op.bias)});
    if (op.bias)
        return LinearBiasRopeKernels::bind(problem_of(op), plan, memory, {{}, {op.out}}, bias_arguments_of(op, memory));
    return LinearRopeKernels::bind(problem_of(op), plan, memory, {{}, {op.out}}, arguments_of(op, memory));
}

}  // namespace coda::hopper
