// LinearResidualRms on the CPU (K4). Macro-tiles hold whole partial tiles.
#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/product.h"
#include "kernels/ops/linear_residual_rms/op.h"

namespace coda::cpu {

namespace {

/// The op on accumulators times `undo`. `bias`: its first element, or NoBias.
template <class Storage, class Compute, class Product, class Undo, class Bias>
void finish(const LinearResidualRms& op, const Operands& operands, const Product& product, Undo undo, Bias bias) {
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    const auto residual = rows_of<const Storage>(operands, "residual", op.residual, product.m, product.n);
    const auto x = rows_of<Storage>(operands, "x", op.x, product.m, product.n);
    const auto square = rows_of<Compute>(operands, "square", op.square, ceil_div(product.n, op.tile), product.m);

    product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i;
            for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                const std::int64_t col = tile.col + first;
                const std::int64_t count = std::min(op.tile, tile.cols - first);
                const Compute* acc = tile[i] + first;
                const Storage* in = residual[row] + col;
                const auto add = bias + col;
                Storage* to_x = x[row] + col;
                Compute sum = 0;
#pragma omp simd reduction(+ : sum)
                for (std::int64_t j = 0; j < count; ++j) {
                    const Compute value = undo * acc[j] + (static_cast<Compute>(in[j]) + add[j]);
                    store(to_x[j], value);
                    sum += value * value;
                }
                square[col / op.tile][row] = sum;
            }
        }
    });
}

}  // namespace

template <>
void execute(const LinearResidualRms& op, const Memory& memory) {
    with_product(op, memory,
                 [&]<class Storage, class Compute>(Types<Storage, Compute>, const auto& operands, const auto& product,
                                                   auto undo) {
                     if (!op.bias) return finish<Storage, Compute>(op, operands, product, undo, NoBias());
                     const Compute* bias = operands.template get<Compute>("bias", op.bias, 1, product.n);
                     finish<Storage, Compute>(op, operands, product, undo, bias);
                 });
}

}  // namespace coda::cpu
