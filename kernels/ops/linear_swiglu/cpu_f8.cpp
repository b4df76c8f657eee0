// LinearSwigluF8 and LinearSwigluBackwardF8 on the CPU. They round where the GPU does: z, y and dz once, from fp32.
#include <algorithm>
#include <cmath>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/f8_copies.h"
#include "kernels/cpu/f8_product.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op_f8.h"

namespace coda::cpu {

template <>
void execute(const LinearSwigluF8& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    const F8Product product(operands, memory, op.a, op.w);
    require(product.n % 2 == 0, op.name, ": w has ", product.n, " rows, not pairs of gate and up");
    require(op.z_t && op.y_t, op.name, ": operand ", op.z_t ? "y_t" : "z_t", " is missing");
    const auto z_t = transposed_copy(op.name, memory, "z_t", op.z_t, product.n, product.m, op.kTokenMultiple);
    const auto y = rows_of<F8E4M3>(operands, "y", op.y, product.m, product.n / 2);
    const auto y_t = transposed_copy(op.name, memory, "y_t", op.y_t, product.n / 2, product.m, op.kTokenMultiple);
    const float scale = f8_factor(operands, "scale", op.scale), z_scale = f8_factor(operands, "z_scale", op.z_scale),
                y_scale = f8_factor(operands, "y_scale", op.y_scale);
    auto* z_amax = operands.get<float>("z_amax", op.z_amax, 1, 1);
    auto* y_amax = operands.get<float>("y_amax", op.y_amax, 1, 1);

    LargestOfThreads largest_z, largest_y;
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

template <>
void execute(const LinearSwigluBackwardF8& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    const F8Product product(operands, memory, op.a, op.w);
    const std::int64_t m = product.m, n = product.n;
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require(op.z_t && op.dz_t, op.name, ": operand ", op.z_t ? "dz_t" : "z_t", " is missing");
    const auto z_t = transposed_copy(op.name, memory, "z_t", op.z_t, 2 * n, m, op.kTokenMultiple);
    const auto dz = rows_of<F8E4M3>(operands, "dz", op.dz, m, 2 * n);
    const auto dz_t = transposed_copy(op.name, memory, "dz_t", op.dz_t, 2 * n, m, op.kTokenMultiple);
    const float z_inverse = 1 / f8_factor(operands, "z_scale", op.z_scale);
    const float dz_scale = *operands.get<float>("dz_scale", op.dz_scale, 1, 1);
    const float factor = *operands.get<float>("scale", op.scale, 1, 1) * dz_scale;
    auto* amax = operands.get<float>("dz_amax", op.dz_amax, 1, 1);
    const auto dot = rows_of<float>(operands, "dot", op.dot, ceil_div(n, op.tile), m);

    LargestOfThreads largest;
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

}  // namespace coda::cpu
