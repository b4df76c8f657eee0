// LayerNorm and LayerNormBackward on the CPU: a row or a tile of rows after the other, each sum in the order of its
// terms.
#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/layer_norm/op.h"

namespace coda::cpu {

template <>
void execute(const LayerNorm& op, const Memory& memory) {
    dispatch_storage(op.name, op.x.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const std::int64_t m = op.x.rows, d = op.x.cols;
        const Operands operands(op.name, memory);
        const auto x = rows_of<const Storage>(operands, "x", op.x, m, d);
        const Compute* rstd = operands.get<Compute>("rstd", op.rstd, 1, m);
        const Compute* gamma = operands.get<Compute>("gamma", op.gamma, 1, d);
        const Compute* beta = operands.get<Compute>("beta", op.beta, 1, d);
        const auto n = rows_of<Storage>(operands, "n", op.n, m, d);
#pragma omp parallel for
        for (std::int64_t row = 0; row < m; ++row)
            for (std::int64_t j = 0; j < d; ++j)
                store(n[row][j], rstd[row] * static_cast<Compute>(x[row][j]) * gamma[j] + beta[j]);
    });
}

template <>
void execute(const LayerNormBackward& op, const Memory& memory) {
    dispatch_storage(op.name, op.x.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const std::int64_t m = op.x.rows, d = op.x.cols, tiles = ceil_div(m, LayerNormBackward::kTileRows);
        require(op.tile == LayerNormBackward::kTileRows, op.name, ": tile is ", op.tile, ", expected ",
                LayerNormBackward::kTileRows);
        const Operands operands(op.name, memory);
        const auto dn = rows_of<const Storage>(operands, "dn", op.dn, m, d);
        const auto x = rows_of<const Storage>(operands, "x", op.x, m, d);
        const Compute* rstd = operands.get<Compute>("rstd", op.rstd, 1, m);
        const Compute* gamma = operands.get<Compute>("gamma", op.gamma, 1, d);
        const auto dx = rows_of<Storage>(operands, "dx", op.dx, m, d);
        const auto dgamma = rows_of<Compute>(operands, "dgamma", op.dgamma, tiles, d);
        const auto dbeta = optional_rows_of<Compute>(operands, "dbeta", op.dbeta, tiles, d);
        const auto dx_sum = optional_rows_of<Compute>(operands, "dx_sum", op.dx_sum, tiles, d);
#pragma omp parallel for
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
            std::fill_n(dgamma[tile], d, Compute(0));
            if (dbeta) std::fill_n(dbeta[tile], d, Compute(0));
            if (dx_sum) std::fill_n(dx_sum[tile], d, Compute(0));
            for (std::int64_t row = tile * op.tile; row < std::min(m, (tile + 1) * op.tile); ++row) {
                Compute mean = 0;  // of t x̂
                for (std::int64_t j = 0; j < d; ++j)
                    mean += static_cast<Compute>(dn[row][j]) * gamma[j] * static_cast<Compute>(x[row][j]);
                mean *= rstd[row] / static_cast<Compute>(d);
                for (std::int64_t j = 0; j < d; ++j) {
                    const auto from = static_cast<Compute>(dn[row][j]);
                    const Compute x_hat = rstd[row] * static_cast<Compute>(x[row][j]);
                    const Compute value = rstd[row] * (from * gamma[j] - x_hat * mean);
                    store(dx[row][j], value);
                    dgamma[tile][j] += from * x_hat;
                    if (dbeta) dbeta[tile][j] += from;
                    if (dx_sum) dx_sum[tile][j] += value;
                }
            }
        }
    });
}

}  // namespace coda::cpu
