// CentreRows on the CPU: a row's sum in the order of its columns.
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/centre_rows/op.h"

namespace coda::cpu {

template <>
void execute(const CentreRows& op, const Memory& memory) {
    dispatch_storage(op.name, op.dx.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const auto dx = rows_of<Storage>(operands, "dx", op.dx, op.dx.rows, op.dx.cols);
#pragma omp parallel for
        for (std::int64_t row = 0; row < op.dx.rows; ++row) {
            Compute sum = 0;
            for (std::int64_t j = 0; j < op.dx.cols; ++j) sum += static_cast<Compute>(dx[row][j]);
            const Compute mean = sum / static_cast<Compute>(op.dx.cols);
            for (std::int64_t j = 0; j < op.dx.cols; ++j)
                dx[row][j] = static_cast<Storage>(static_cast<Compute>(dx[row][j]) - mean);
        }
    });
}

}  // namespace coda::cpu
