// LinearSwiglu on the CPU (K2, K6). Macro-tiles hold whole pairs. Of codes it rounds where the GPU does: z and y once,
// from fp32.
#include <cmath>
#include <type_traits>

#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/largest.h"
#include "kernels/cpu/product.h"
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op.h"

namespace coda::cpu {

namespace {

template <class Storage, class Compute>
void from_storage(const LinearSwiglu& op, const Operands& operands, const LinearProduct<Storage>& product) {
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
}

void from_codes(const LinearSwiglu& op, const Memory& memory, const F8Product& product, float scale) {
    require(product.n % 2 == 0, op.name, ": w has ", product.n, " rows, not pairs of gate and up");
    require_rounded(op.name, op.z_names, op.z.codes, product.m, product.n, false);
    require_rounded(op.name, op.y_names, op.y.codes, product.m, product.n / 2);
    const Rows<F8E4M3> z_t{memory.at<F8E4M3>(op.z.codes.columns), op.z.codes.columns.ld};
    const Rows<F8E4M3> y{memory.at<F8E4M3>(op.y.codes.rows), op.y.codes.rows.ld};
    const Rows<F8E4M3> y_t{memory.at<F8E4M3>(op.y.codes.columns), op.y.codes.columns.ld};
    const float z_scale = *memory.at<float>(op.z.codes.scale), y_scale = *memory.at<float>(op.y.codes.scale);
    auto *z_amax = memory.at<float>(op.z.codes.amax), *y_amax = memory.at<float>(op.y.codes.amax);

    LargestOfThreads<> largest_z, largest_y;
    product.run<float>(1, 2, [&](const AccumulatorTile<float>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i, token = paired_place(row);
            for (std::int64_t j = 0; j < tile.cols; j += 2) {
                const float gate = scale * tile[i][j], up = scale * tile[i][j + 1];
                z_t[tile.col + j][token] = F8E4M3(z_scale * gate);
                z_t[tile.col + j + 1][token] = F8E4M3(z_scale * up);
                largest_z.add(gate);
                largest_z.add(up);
                const auto value = swiglu<float>(gate, up, logistic(gate));
                largest_y.add(value);
                const std::int64_t column = (tile.col + j) / 2;
                y[row][column] = y_t[column][token] = F8E4M3(y_scale * value);
            }
        }
    });
    *z_amax = std::fmax(*z_amax, largest_z.of_all());
    *y_amax = std::fmax(*y_amax, largest_y.of_all());
}

}  // namespace

template <>
void execute(const LinearSwiglu& op, const Memory& memory) {
    with_product(op, memory,
                 [&]<class Storage, class Compute>(Types<Storage, Compute>, const auto& operands, const auto& product,
                                                   auto undo) {
                     if constexpr (std::is_same_v<decltype(undo), NoFactor>)
                         from_storage<Storage, Compute>(op, operands, product);
                     else
                         from_codes(op, memory, product, undo);
                 });
}

}  // namespace coda::cpu
