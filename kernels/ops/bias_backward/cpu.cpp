// BiasBackward on the CPU: a tile of rows after the other, each sum in the order of its terms.
#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/bias_backward/op.h"

namespace coda::cpu {

template <>
void execute(const BiasBackward& op, const Memory& memory) {
    dispatch_storage(op.name, op.dz.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const std::int64_t m = op.dz.rows, n = op.dz.cols;
        require(op.tile == BiasBackward::kTileRows, op.name, ": tile is ", op.tile, ", expected ",
                BiasBackward::kTileRows);
        const Operands operands(op.name, memory);
        const auto dz = rows_of<const Storage>(operands, "dz", op.dz, m, n);
        const RowFactor<Compute> rstd(operands, op.rstd, m);
        const Compute* bias = operands.get<Compute>("bias", op.bias, 1, n);
        Compute* dot = operands.get<Compute>("dot", op.dot, 1, m);
        const std::int64_t tiles = ceil_div(m, op.tile);
        const auto sums = rows_of<Compute>(operands, "sum", op.sum, tiles, n);
#pragma omp parallel for
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
            Compute* sum = sums[tile];
            std::fill_n(sum, n, Compute(0));
            for (std::int64_t row = tile * op.tile; row < std::min(m, (tile + 1) * op.tile); ++row) {
                const Compute over = Compute(1) / rstd[row];
                Compute of_bias = 0;
                for (std::int64_t j = 0; j < n; ++j) {
                    const auto value = static_cast<Compute>(dz[row][j]);
                    sum[j] += value * over;
                    of_bias += bias[j] * value;
                }
                dot[row] -= of_bias;
            }
        }
    });
}

}  // namespace coda::cpu
