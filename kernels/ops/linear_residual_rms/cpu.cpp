// LinearResidualRms on the CPU (K4). Macro-tiles hold whole partial tiles.
#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/f8_product.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/linear_residual_rms/op.h"

namespace coda::cpu {

namespace {

/// The op on accumulators times `factor`, of the FP8 form.
template <class Storage, class Compute, class Product, class Factor>
void finish(const LinearResidualRms& op, const Operands& operands, const Product& product, Factor factor) {
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
                Storage* to_x = x[row] + col;
                Compute sum = 0;
#pragma omp simd reduction(+ : sum)
                for (std::int64_t j = 0; j < count; ++j) {
                    const Compute value = factor * acc[j] + static_cast<Compute>(in[j]);
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
    const Operands operands(op.name, memory);
    if (is_f8(op.a.dtype))
        return finish<Bf16, float>(op, operands, F8Product(operands, memory, op.a, op.w),
                                   f8_factor(operands, "scale", op.scale));
    require_no_f8_factor(op.name, "scale", op.scale, op.a);
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        finish<Storage, Compute>(op, operands, LinearProduct<Storage>(operands, op.a, op.w, WeightLayout::out_in),
                                 NoFactor());
    });
}

}  // namespace coda::cpu
