// The GEMM programs that only store: Linear (K5), WeightGradient.
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/operations.h"

namespace coda::cpu {

namespace {

/// The factor of a row or column that has none.
constexpr auto one = [](std::int64_t) { return 1; };

/// out = factor acc, or out += factor acc, on one macro-tile; the sum is rounded once. The factor is one of the row
/// times one of the column.
template <class Compute, class Out, class OfRow, class OfColumn>
void store_tile(const AccumulatorTile<Compute>& tile, const OfRow& of_row, const OfColumn& of_column, Beta beta,
                Rows<Out> to) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
        const Compute* acc = tile[i];
        const auto scale = static_cast<Compute>(of_row(tile.row + i));
        const auto value = [&](std::int64_t j) {
            return scale * acc[j] * static_cast<Compute>(of_column(tile.col + j));
        };
        Out* out = to[tile.row + i] + tile.col;
        if (beta == Beta::accumulate) {
#pragma omp simd
            for (std::int64_t j = 0; j < tile.cols; ++j) store(out[j], static_cast<Compute>(out[j]) + value(j));
        } else {
#pragma omp simd
            for (std::int64_t j = 0; j < tile.cols; ++j) store(out[j], value(j));
        }
    }
}

}  // namespace

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

void execute(const WeightGradient& op, const Memory& memory) {
    dispatch_storage(op.name, op.dy.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const GemmShape shape{.m = op.dy.cols, .n = op.x.cols, .k = op.dy.rows};
        require(shape.m > 0 && shape.n > 0 && shape.k > 0, op.name, ": an empty product, out ", shape.m, ", in ",
                shape.n, ", M ", shape.k);
        const GemmOperand<Storage> dy{operands.get<Storage>("dy", op.dy, shape.k, shape.m), op.dy.ld, Major::mn};
        const GemmOperand<Storage> x{operands.get<Storage>("x", op.x, shape.k, shape.n), op.x.ld, Major::mn};
        const auto alpha = scalar_or_one<Compute>(operands, "alpha", op.alpha);
        const auto* gamma = operands.get_optional<Compute>("gamma", op.gamma, 1, shape.n);
        const auto grad = rows_of<Compute>(operands, "grad", op.grad, shape.m, shape.n);
        gemm<Compute>(shape, dy, x, [&](const AccumulatorTile<Compute>& tile) {
            const auto factor = [&](std::int64_t) { return alpha; };
            if (gamma) {
                store_tile(
                    tile, factor, [&](std::int64_t column) { return gamma[column]; }, op.grad.beta, grad);
            } else {
                store_tile(tile, factor, one, op.grad.beta, grad);
            }
        });
    });
}

}  // namespace coda::cpu
