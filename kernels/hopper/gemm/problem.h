// A GEMM op as the kernels need it: checked operands with their majors. Errors name what does not fit. Host.
#pragma once

#include "kernels/core/memory.h"
#include "kernels/core/op.h"
#include "kernels/core/operand_check.h"
#include "kernels/hopper/sm90/descriptor.h"

namespace coda::hopper {

/// acc (m, n) = A B over k. In a K-major operand k is contiguous: A is stored as (m, k), B as (n, k). An MN-major
/// operand is stored as (k, m) or (k, n).
struct Problem {
    const char* op = "";
    View a, b;
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t partial_columns = 0;  // columns of a tile, where the op has partials by tile
};

/// acc = a wᵀ with w (N, K), or a w with w (K, N).
Problem linear_problem(const char* op, const View& a, const View& w, WeightLayout layout);

/// acc = a wᵀ of FP8 codes. `format`: of a, where it may be another than f8e4m3.
Problem f8_problem(const char* op, const View& a, const View& w, DType format = DType::f8e4m3);

/// acc = dyᵀ x. FP8 operands are the transposed copies, dyᵀ and xᵀ.
Problem weight_gradient_problem(const char* op, const View& dy, const View& x);

}  // namespace coda::hopper
