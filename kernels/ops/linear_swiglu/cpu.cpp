// LinearSwiglu (K2, K6) and LinearSwigluBackward (K10) on the CPU. Macro-tiles hold whole pairs and partial tiles.
#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op.h"

namespace coda::cpu {

template <>
void execute(const LinearSwiglu& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(product.n % 2 == 0, op.name, ": w has ", product.n, " rows, not pairs of gate and up");
        const RowFactor<Compute> factor(operands, op.rstd, product.m);
        const auto z = optional_rows_of<Storage>(operands, "z", op.z, product.m, product.n);
        const auto y = optional_rows_of<Storage>(operands, "y", op.y, product.m, product.n / 2);

        product.template run<Compute>(1, 2, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const Compute* acc = tile[i];
                const Compute scale = factor[tile.row + i];
                if (z) {
                    Storage* to = z[tile.row + i] + tile.col;
#pragma omp simd
                    for (std::int64_t j = 0; j < tile.cols; ++j) store(to[j], scale * acc[j]);
                }
                if (y) {
                    Storage* to = y[tile.row + i] + tile.col / 2;
#pragma omp simd
                    for (std::int64_t j = 0; j < tile.cols / 2; ++j) {
                        Storage pair[2];
                        store(pair[0], scale * acc[2 * j]);
                        store(pair[1], scale * acc[2 * j + 1]);
                        const auto gate = static_cast<Compute>(pair[0]), up = static_cast<Compute>(pair[1]);
                        store(to[j], swiglu<Compute>(gate, up, logistic(gate)));
                    }
                }
            }
        });
    });
}

template <>
void execute(const LinearSwigluBackward& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::in_out);
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const auto z = rows_of<const Storage>(operands, "z", op.z, product.m, 2 * product.n);
        const auto dz = rows_of<Storage>(operands, "dz", op.dz, product.m, 2 * product.n);
        const auto y = optional_rows_of<Storage>(operands, "y", op.y, product.m, product.n);
        const auto* rstd = operands.get_optional<Compute>("rstd", op.rstd, 1, product.m);
        const auto dot = rows_of<Compute>(operands, "dot", op.dot, ceil_div(product.n, op.tile), product.m);

        product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                const Compute factor = rstd ? rstd[row] : Compute(1);
                for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                    const std::int64_t col = tile.col + first;
                    const std::int64_t count = std::min(op.tile, tile.cols - first);
                    const Compute* dy = tile[i] + first;
                    const Storage* in = z[row] + 2 * col;
                    Storage* to_dz = dz[row] + 2 * col;
                    if (y) {
                        Storage* to_y = y[row] + col;
#pragma omp simd
                        for (std::int64_t j = 0; j < count; ++j) {
                            const auto gate = static_cast<Compute>(in[2 * j]), up = static_cast<Compute>(in[2 * j + 1]);
                            store(to_y[j], swiglu<Compute>(gate, up, logistic(gate)));
                        }
                    }
                    Compute sum = 0;
                    // dz may be z: each pair is loaded before it is stored, and iterations touch different pairs.
#pragma omp simd reduction(+ : sum)
                    for (std::int64_t j = 0; j < count; ++j) {
                        const auto gate = static_cast<Compute>(in[2 * j]), up = static_cast<Compute>(in[2 * j + 1]);
                        const auto gradient = swiglu_backward<Compute>(gate, up, factor * dy[j], logistic(gate));
                        store(to_dz[2 * j], gradient.dgate);
                        store(to_dz[2 * j + 1], gradient.dup);
                        sum += gradient.dot;
                    }
                    dot[col / op.tile][row] = sum;
                }
            }
        });
    });
}

}  // namespace coda::cpu
