#include "kernels/hopper/gemm/problem.h"

#include <limits>

#include "kernels/core/f8.h"
#include "kernels/core/integers.h"
#include "kernels/core/limits.h"

namespace coda::hopper {

namespace {

Problem checked(const Problem& problem) {
    const bool f8 = is_f8(problem.a.dtype) && is_f8(problem.b.dtype);
    require(f8 || (problem.a.dtype == DType::bf16 && problem.b.dtype == DType::bf16), problem.op, ": operands are ",
            name_of(problem.a.dtype), " and ", name_of(problem.b.dtype),
            ", Hopper kernels multiply bf16 or FP8, of one size");
    const std::int64_t unit = f8 ? kF8Multiple : 8;
    require(problem.m > 0 && problem.n > 0 && problem.k > 0 && problem.n % 8 == 0 && problem.k % unit == 0, problem.op,
            ": M ", problem.m, ", N ", problem.n, ", K ", problem.k, " must be positive, N a multiple of 8 and K of ",
            unit, " (rows of 16 bytes)");
    constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
    require(problem.m < kLimit && problem.n < kLimit && problem.k < kLimit, problem.op, ": M ", problem.m, ", N ",
            problem.n, ", K ", problem.k, " must all be below ", kLimit);
    constexpr std::int64_t kSmallestTile = 64;  // rows, and columns: no tile has fewer
    const std::int64_t tiles = ceil_div(problem.m, kSmallestTile) * ceil_div(problem.n, kSmallestTile);
    limits::require_none(problem.op, limits::tiles_problem("M N / 64^2", tiles));
    return problem;
}

}  // namespace

Problem linear_problem(const char* op, const View& a, const View& w, WeightLayout layout) {
    const bool out_in = layout == WeightLayout::out_in;
    const std::int64_t inner = out_in ? w.cols : w.rows;
    require(out_in || !is_f8(w.dtype), op, ": w is ", name_of(w.dtype),
            " as (K, N); FP8 operands have K in their columns, so pass the transposed copy");
    require(a.cols == inner, op, ": a is ", a.rows, " x ", a.cols, " but w is ", w.rows, " x ", w.cols,
            out_in ? " as (N, K)" : " as (K, N)");
    return checked({op, a, w, a.rows, out_in ? w.rows : w.cols, inner});
}

Problem f8_problem(const char* op, const View& a, const View& w, DType format) {
    const Problem problem = linear_problem(op, a, w, WeightLayout::out_in);
    require_operand(op, "a", a, problem.m, problem.k, format);
    require_operand(op, "w", w, problem.n, problem.k, DType::f8e4m3);
    return problem;
}

Problem weight_gradient_problem(const char* op, const View& dy, const View& x) {
    if (is_f8(dy.dtype)) {
        require(dy.cols == x.cols, op, ": dyᵀ has ", dy.cols, " columns and xᵀ ", x.cols);
        require(dy.order == x.order, op, ": dyᵀ and xᵀ have their tokens in different orders");
        return checked({op, dy, x, dy.rows, x.rows, dy.cols});
    }
    require(dy.rows == x.rows, op, ": dy has ", dy.rows, " rows and x ", x.rows);
    require(dy.cols % 8 == 0, op, ": dy has ", dy.cols, " columns, not a multiple of 8");
    Problem problem{op, dy, x, dy.cols, x.cols, dy.rows};
    require(problem.k > 0, op, ": no rows");
    // Here K is the number of tokens, which are rows of both operands, so any K will do.
    const std::int64_t k = problem.k;
    problem.k = 8;
    problem = checked(problem);
    problem.k = k;
    return problem;
}

}  // namespace coda::hopper
