// The FP8 forms of GEMM ops, whose kernels hopper_f8.cu of an op's folder has. hopper.cu hands over to it. Host.
#pragma once

#include "kernels/hopper/gemm/problem.h"
#include "kernels/hopper/plan.h"

namespace coda::hopper {

/// choose and bind for an op of FP8 operands. Errors as theirs.
template <class Op>
Plan choose_f8(const Op& op, const Request& request);
template <class Op>
Launch bind_f8(const Op& op, const Plan& plan, const Memory& memory);

/// acc = a wᵀ of f8e4m3 operands, with the scalar that undoes their scales. `format`: of a, where it may be another.
inline Problem f8_problem(const char* op, const View& a, const View& w, const char* scale_name, const View& scale,
                          DType format = DType::f8e4m3) {
    const Problem problem = linear_problem(op, a, w, WeightLayout::out_in);
    require_operand(op, "a", a, problem.m, problem.k, format);
    require_operand(op, "w", w, problem.n, problem.k, DType::f8e4m3);
    require_operand(op, scale_name, scale, 1, 1, DType::f32);
    return problem;
}

}  // namespace coda::hopper
