// Linear on the CPU (K5 with rstd).
#include "kernels/cpu/execute.h"
#include "kernels/cpu/f8_product.h"
#include "kernels/cpu/store_tile.h"
#include "kernels/ops/linear/op.h"

namespace coda::cpu {

namespace {

/// The FP8 form: as if a and w were fp32, with one rounding, of the result.
void execute_f8(const Linear& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    require(op.layout == WeightLayout::out_in && !op.rstd, op.name,
            ": FP8 operands are (M, K) and (N, K), and have no rstd");
    const F8Product product(operands, memory, op.a, op.w);
    const auto scale = scalar_or_one<float>(operands, "scale", op.scale);
    const auto store_as = [&]<class Out>(Rows<Out> out) {
        product.run<float>(1, 1, [&](const AccumulatorTile<float>& tile) {
            store_tile(
                tile, [&](std::int64_t) { return scale; }, one, op.out.beta, out);
        });
    };
    if (op.out.dtype == DType::f32)
        store_as(rows_of<float>(operands, "out", op.out, product.m, product.n));
    else
        store_as(rows_of<Bf16>(operands, "out", op.out, product.m, product.n));
}

}  // namespace

template <>
void execute(const Linear& op, const Memory& memory) {
    if (is_f8(op.a.dtype)) return execute_f8(op, memory);
    require(!op.scale && op.promotion == 0, op.name, ": scale and promotion go with FP8 operands, and a is ",
            name_of(op.a.dtype));
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
