#include "kernels/hopper/gemm/problem.h"

#include <limits>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"

namespace coda::hopper {

namespace {

Problem checked(const Problem& problem) {
    require(problem.a.dtype == DType::bf16 && problem.b.dtype == DType::bf16, problem.op, ": operands are ",
            name_of(problem.a.dtype), " and ", name_of(problem.b.dtype), ", Hopper kernels multiply bf16");
    require(problem.m > 0 && problem.n > 0 && problem.k > 0 && problem.n % 8 == 0 && problem.k % 8 == 0, problem.op,
            ": M ", problem.m, ", N ", problem.n, ", K ", problem.k,
            " must be positive, and N and K multiples of 8 (rows of 16 bytes)");
    constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
    require(problem.m < kLimit && problem.n < kLimit && problem.k < kLimit, problem.op, ": a dimension exceeds 2^31");
    constexpr std::int64_t kSmallestTile = 64;  // rows, and columns: no tile has fewer
    const std::int64_t tiles = ceil_div(problem.m, kSmallestTile) * ceil_div(problem.n, kSmallestTile);
    limits::require_none(problem.op, limits::tiles_problem("M N / 64^2", tiles));
    return problem;
}

}  // namespace

Problem linear_problem(const char* op, const View& a, const View& w, WeightLayout layout) {
    const bool out_in = layout == WeightLayout::out_in;
    const std::int64_t inner = out_in ? w.cols : w.rows;
    require(a.cols == inner, op, ": a is ", a.rows, " x ", a.cols, " but w is ", w.rows, " x ", w.cols,
            out_in ? " as (N, K)" : " as (K, N)");
    return checked({op, a, w, a.rows, out_in ? w.rows : w.cols, inner});
}

Problem weight_gradient_problem(const char* op, const View& dy, const View& x) {
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
