// Linear on the CPU (K5 with rstd).
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/store_tile.h"
#include "kernels/ops/linear/op.h"

namespace coda::cpu {

template <>
void execute(const Linear& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, op.layout);
        const RowFactor<Compute> factor(operands, op.rstd, product.m);
        const auto store_as = [&]<class Out>(Rows<Out> out) {
            product.template run<Compute>(1, 1, [&](const AccumulatorTile<Compute>& tile) {
                store_tile(
                    tile, [&](std::int64_t row) { return factor[row]; }, one, op.out.beta, out);
            });
        };
        if (op.out.dtype == dtype_of<Compute>)  // a gradient, or storage of the accumulator's type
            store_as(rows_of<Compute>(operands, "out", op.out, product.m, product.n));
        else
            store_as(rows_of<Storage>(operands, "out", op.out, product.m, product.n));
    });
}

}  // namespace coda::cpu
