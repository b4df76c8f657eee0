// The GEMM programs that only store: Linear, LinearRstd (K5), WeightGradient.
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/operations.h"

namespace coda::cpu {

namespace {

/// out = factor acc, or out += factor acc, on one macro-tile; the sum is rounded once.
template <class Compute, class Out, class Factor>
void store_tile(const AccumulatorTile<Compute>& tile, const Factor& factor, Beta beta, Rows<Out> to) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
        const Compute* acc = tile[i];
        const Compute scale = factor(tile.row + i);
        Out* out = to[tile.row + i] + tile.col;
        if (beta == Beta::accumulate) {
#pragma omp simd
            for (std::int64_t j = 0; j < tile.cols; ++j) store(out[j], static_cast<Compute>(out[j]) + scale * acc[j]);
        } else {
#pragma omp simd
            for (std::int64_t j = 0; j < tile.cols; ++j) store(out[j], scale * acc[j]);
        }
    }
}

}  // namespace

void execute(const Linear& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, op.layout);
        const auto store_as = [&]<class Out>(Rows<Out> out) {
            product.template run<Compute>(1, 1, [&](const AccumulatorTile<Compute>& tile) {
                store_tile(
                    tile, [](std::int64_t) { return Compute(1); }, op.out.beta, out);
            });
        };
        if (op.out.dtype == dtype_of<Compute>)  // a gradient, or storage of the accumulator's type
            store_as(rows_of<Compute>(operands, "out", op.out, product.m, product.n));
        else
            store_as(rows_of<Storage>(operands, "out", op.out, product.m, product.n));
    });
}

void execute(const LinearRstd& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        const auto* rstd = operands.get<Compute>("rstd", op.rstd, 1, product.m);
        const auto out = rows_of<Storage>(operands, "out", op.out, product.m, product.n);
        product.template run<Compute>(1, 1, [&](const AccumulatorTile<Compute>& tile) {
            store_tile(
                tile, [&](std::int64_t row) { return rstd[row]; }, Beta::overwrite, out);
        });
    });
}

void execute(const WeightGradient& op, const Memory& memory) {
    dispatch_storage(op.name, op.dy.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const GemmShape shape{.m = op.dy.cols, .n = op.x.cols, .k = op.dy.rows};
        require(shape.m > 0 && shape.n > 0 && shape.k > 0, op.name, ": an empty product, out ", shape.m, ", in ",
                shape.n, ", M ", shape.k);
        const GemmOperand<Storage> dy{operands.get<Storage>("dy", op.dy, shape.k, shape.m), op.dy.ld, Major::mn};
        const GemmOperand<Storage> x{operands.get<Storage>("x", op.x, shape.k, shape.n), op.x.ld, Major::mn};
        const auto alpha = scalar_or_one<Compute>(operands, "alpha", op.alpha);
        const auto grad = rows_of<Compute>(operands, "grad", op.grad, shape.m, shape.n);
        gemm<Compute>(shape, dy, x, [&](const AccumulatorTile<Compute>& tile) {
            store_tile(
                tile, [&](std::int64_t) { return alpha; }, op.grad.beta, grad);
        });
    });
}

}  // namespace coda::cpu
