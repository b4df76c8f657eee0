// FoldBeta and BetaBackward on the CPU: each sum in the order of its terms.
#include <algorithm>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/rms.h"
#include "kernels/ops/norm_beta/op.h"

namespace coda::cpu {

template <>
void execute(const FoldBeta& op, const Memory& memory) {
    dispatch_storage(op.name, op.working.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const std::int64_t n = op.working.rows, d = op.working.cols;
        const Operands operands(op.name, memory);
        const auto working = rows_of<const Storage>(operands, "working", op.working, n, d);
        const Compute* gamma = operands.get<Compute>("gamma", op.gamma, 1, d);
        const Compute* beta = operands.get<Compute>("beta", op.beta, 1, d);
        const Compute* bias = operands.get_optional<Compute>("bias", op.bias, 1, n);
        Compute* v = operands.get<Compute>("v", op.v, 1, n);
        std::vector<Compute> factors(static_cast<std::size_t>(d));
        std::transform(beta, beta + d, gamma, factors.begin(),
                       [](Compute of_beta, Compute of_gamma) { return of_beta / norm_factor(of_gamma); });
#pragma omp parallel for
        for (std::int64_t row = 0; row < n; ++row) {
            Compute sum = 0;
            for (std::int64_t j = 0; j < d; ++j)
                sum += static_cast<Compute>(working[row][j]) * factors[static_cast<std::size_t>(j)];
            v[row] = bias ? bias[row] + sum : sum;
        }
    });
}

template <>
void execute(const BetaBackward& op, const Memory& memory) {
    dispatch_storage(op.name, op.working.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const std::int64_t n = op.working.rows, d = op.working.cols, tiles = ceil_div(n, BetaBackward::kTileRows);
        require(op.tile == BetaBackward::kTileRows, op.name, ": tile is ", op.tile, ", expected ",
                BetaBackward::kTileRows);
        const Operands operands(op.name, memory);
        const Compute* db = operands.get<Compute>("db", op.db, 1, n);
        const auto working = rows_of<const Storage>(operands, "working", op.working, n, d);
        const Compute* beta = operands.get<Compute>("beta", op.beta, 1, d);
        const auto grad = rows_of<Compute>(operands, "grad", op.grad, n, d);
        const auto dbeta = rows_of<Compute>(operands, "dbeta", op.dbeta, tiles, d);
#pragma omp parallel for
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
            Compute* sum = dbeta[tile];
            std::fill_n(sum, d, Compute(0));
            for (std::int64_t row = tile * op.tile; row < std::min(n, (tile + 1) * op.tile); ++row)
                for (std::int64_t j = 0; j < d; ++j) {
                    grad[row][j] += db[row] * beta[j];
                    sum[j] += db[row] * static_cast<Compute>(working[row][j]);
                }
        }
    });
}

}  // namespace coda::cpu
