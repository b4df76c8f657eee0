// LinearSwigluBackward on the CPU (K10). Macro-tiles hold whole partial tiles. Of codes it rounds where the GPU does:
// dz once, from fp32.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/largest.h"
#include "kernels/cpu/product.h"
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op.h"

namespace coda::cpu {

namespace {

template <class Storage, class Compute>
void from_storage(const LinearSwigluBackward& op, const Operands& operands, const LinearProduct<Storage>& product) {
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
}

void from_codes(const LinearSwigluBackward& op, const Memory& memory, const Operands& operands,
                const F8Product& product, float undo) {
    const std::int64_t m = product.m, n = product.n;
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "z_t", op.z, 2 * n, m, DType::f8e4m3, ColumnOrder::paired);
    require_rounded(op.name, op.dz_names, op.dz.codes, m, 2 * n);
    const Rows<F8E4M3> z_t{memory.at<F8E4M3>(op.z), op.z.ld};
    const Rows<F8E4M3> dz{memory.at<F8E4M3>(op.dz.codes.rows), op.dz.codes.rows.ld};
    const Rows<F8E4M3> dz_t{memory.at<F8E4M3>(op.dz.codes.columns), op.dz.codes.columns.ld};
    const float z_inverse = 1 / *operands.get<float>("z_scale", op.z_scale, 1, 1);
    const float dz_scale = *memory.at<float>(op.dz.codes.scale);
    const float factor = undo * dz_scale;
    auto* amax = memory.at<float>(op.dz.codes.amax);
    const auto dot = rows_of<float>(operands, "dot", op.dot, ceil_div(n, op.tile), m);

    LargestOfThreads<> largest;
    product.run<float>(1, op.tile, [&](const AccumulatorTile<float>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i, token = paired_place(row);
            for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                float sum = 0;
                for (std::int64_t j = first; j < std::min(first + op.tile, tile.cols); ++j) {
                    const std::int64_t col = tile.col + j;
                    const float gate = z_inverse * static_cast<float>(z_t[2 * col][token]);
                    const float up = z_inverse * static_cast<float>(z_t[2 * col + 1][token]);
                    const auto gradient = swiglu_backward<float>(gate, up, factor * tile[i][j], logistic(gate));
                    const F8E4M3 dgate(gradient.dgate), dup(gradient.dup);
                    dz[row][2 * col] = dz_t[2 * col][token] = dgate;
                    dz[row][2 * col + 1] = dz_t[2 * col + 1][token] = dup;
                    largest.add(gradient.dgate);
                    largest.add(gradient.dup);
                    sum += gradient.dot;
                }
                dot[(tile.col + first) / op.tile][row] = sum / dz_scale;
            }
        }
    });
    *amax = std::fmax(*amax, largest.of_all() / dz_scale);
}

}  // namespace

template <>
void execute(const LinearSwigluBackward& op, const Memory& memory) {
    with_product(op, memory,
                 [&]<class Storage, class Compute>(Types<Storage, Compute>, const auto& operands, const auto& product,
                                                   auto undo) {
                     if constexpr (std::is_same_v<decltype(undo), NoFactor>)
                         from_storage<Storage, Compute>(op, operands, product);
                     else
                         from_codes(op, memory, operands, product, undo);
                 });
}

}  // namespace coda::cpu
