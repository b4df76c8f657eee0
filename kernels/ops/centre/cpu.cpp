// CentreColumns on the CPU: strips of columns, each sum in the order of the rows.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/centre/op.h"

namespace coda::cpu {

template <>
void execute(const CentreColumns& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    const std::int64_t n = op.matrix.rows, k = op.matrix.cols;
    require(n != 1, op.name, ": operand matrix has one row, which is its own mean");
    dispatch_storage(op.name, op.matrix.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        constexpr std::int64_t kColumns = 64;
        const auto matrix = rows_of<const Storage>(operands, "matrix", op.matrix, n, k);
        const auto out = rows_of<Storage>(operands, "out", op.out, n, k);
#pragma omp parallel for
        for (std::int64_t first = 0; first < k; first += kColumns) {
            const std::int64_t number = std::min(kColumns, k - first);
            Compute mean[kColumns] = {};
            for (std::int64_t row = 0; row < n; ++row)
                for (std::int64_t j = 0; j < number; ++j) mean[j] += static_cast<Compute>(matrix[row][first + j]);
            for (std::int64_t j = 0; j < number; ++j) mean[j] /= static_cast<Compute>(n);
            for (std::int64_t row = 0; row < n; ++row)
                for (std::int64_t j = 0; j < number; ++j)
                    store(out[row][first + j], static_cast<Compute>(matrix[row][first + j]) - mean[j]);
        }
    });
    if (!op.bias && !op.bias_out) return;
    dispatch_statistic(op.name, "bias", op.bias, [&]<class Compute>(Compute) {
        const auto* bias = operands.get<Compute>("bias", op.bias, 1, n);
        auto* out = operands.get<Compute>("bias_out", op.bias_out, 1, n);
        const Compute mean = std::accumulate(bias, bias + n, Compute(0)) / static_cast<Compute>(n);
        std::transform(bias, bias + n, out, [&](Compute value) { return value - mean; });
    });
}

}  // namespace coda::cpu
