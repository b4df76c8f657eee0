// linear_head_dot - dgrad of the output projection, with attention's delta
//
//   out   = acc = a w                  (M, H hd) bf16, w (K, H hd)
//   delta = Σ over a head of o out     (H, M) fp32, with out as rounded
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_head_dot/op.h"
#include "kernels/ops/linear_head_dot/program.cuh"

namespace coda::hopper {

namespace {

template <class... Tiles>
using HeadDotKernels = Kernels<HeadDot, Major::k, Major::mn, Tiles...>;

Problem problem_of(const LinearHeadDot& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    require_operands(op, problem);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearHeadDot& op, const Request& request) {
    return with_tiles_of_heads<HeadDotKernels>(op,
                                               [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearHeadDot& op, const Plan& plan, const Memory& memory) {
    return with_tiles_of_heads<HeadDotKernels>(op, [&](auto kernels) {
        return kernels.bind(problem_of(op), plan, memory, {{op.o}, {op.out}}, arguments_of(op, memory));
    });
}

}  // namespace coda::hopper
