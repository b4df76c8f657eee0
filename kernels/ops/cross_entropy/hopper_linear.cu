// linear_cross_entropy - exponentials of the logits and the sums of their rows (K3), after the norm's 1/rms (K8)
//
//   d            = acc rstd - t, t the target's logit (TargetLogit)      rstd, t (M) fp32; rstd 1 where absent
//   exponentials = e = 2^(min(log2(e) d, kLimit) - kShift)               (M, V) bf16, 0 in columns >= vocab
//   sums         = (Σ e, Σ e d) over the tile's columns < vocab          (tiles, M) pairs
//
// The sums are taken of e as it is stored. Then the gradient e / Σ e - [target] sums to 0 over a row, as it must. With
// sums of unrounded e it does not: rows with the same prediction are off by the same amount, and training drifts. t
// takes the place of the row's maximum (kernels/math/cross_entropy.h), so one pass over the logits is enough.
#include "kernels/hopper/gemm/f8_form.h"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/cross_entropy/program.cuh"

namespace coda::hopper {

namespace {

/// Calls fn with the kernels of the variant that the vocabulary needs.
template <class Fn>
auto with_kernels(const LinearCrossEntropy& op, const Fn& fn) {
    if (has_whole_tiles(op))
        return fn(Kernels<CrossEntropy<false>, Major::k, Major::k, tiles::CrossEntropyTall, tiles::CrossEntropy>{});
    return fn(Kernels<CrossEntropy<true>, Major::k, Major::k, tiles::CrossEntropy>{});
}

Problem problem_of(const LinearCrossEntropy& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    require_no_f8_factor(op.name, "scale", op.scale, op.a);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    return with_operands(op, problem);
}

}  // namespace

template <>
Plan choose(const LinearCrossEntropy& op, const Request& request) {
    if (is_f8(op.a.dtype)) return choose_f8(op, request);
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem, request); });
}

template <>
Launch bind(const LinearCrossEntropy& op, const Plan& plan, const Memory& memory) {
    if (is_f8(op.a.dtype)) return bind_f8(op, plan, memory);
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) {
        return kernels.bind(problem, plan, memory, {{}, {op.exponentials}}, arguments_of(op, memory));
    });
}

}  // namespace coda::hopper
