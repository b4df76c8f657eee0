// LinearSwigluBackwardF8 on the CPU. It rounds where the GPU does: dz and y_t once, from fp32.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/float8.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/swiglu.h"
#include "kernels/ops/linear_swiglu/op_f8.h"

namespace coda::cpu {

template <>
void execute(const LinearSwigluBackwardF8& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    const DecodedMatrix a(operands, memory, "a", op.a), w(operands, memory, "w", op.w);
    const GemmShape shape{.m = op.a.rows, .n = op.w.rows, .k = op.a.cols, .column_unit = std::min(op.tile, op.w.rows)};
    require(shape.m > 0 && shape.n > 0 && shape.k > 0 && op.w.cols == shape.k, op.name, ": a is (", shape.m, ", ",
            shape.k, ") and w (", shape.n, ", ", op.w.cols, ")");
    require(shape.m % op.kTokenMultiple == 0, op.name, ": M is ", shape.m, ", not a multiple of ", op.kTokenMultiple,
            ": the transposed copies keep their tokens in pairs of each ", op.kTokenMultiple);
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    constexpr DType kF8 = DType::f8e4m3;
    const auto z = rows_of<const Bf16>(operands, "z", op.z, shape.m, 2 * shape.n);
    const auto dz = rows_of<F8E4M3>(operands, "dz", op.dz, shape.m, 2 * shape.n);
    require_operand(op.name, "dz_t", op.dz_t, 2 * shape.n, shape.m, kF8, ColumnOrder::paired);
    const Rows<F8E4M3> dz_t{memory.at<F8E4M3>(op.dz_t), op.dz_t.ld};
    if (op.y_t) require_operand(op.name, "y_t", op.y_t, shape.n, shape.m, kF8, ColumnOrder::paired);
    const Rows<F8E4M3> y_t{memory.at<F8E4M3>(op.y_t), op.y_t.ld};
    const float dz_scale = *operands.get<float>("dz_scale", op.dz_scale, 1, 1);
    const float factor = *operands.get<float>("scale", op.scale, 1, 1) * dz_scale;
    const float y_scale = op.y_t ? *operands.get<float>("y_scale", op.y_scale, 1, 1) : 1.0f;
    auto* amax = operands.get<float>("dz_amax", op.dz_amax, 1, 1);
    const auto dot = rows_of<float>(operands, "dot", op.dot, ceil_div(shape.n, op.tile), shape.m);

    std::vector<float> largest(static_cast<std::size_t>(omp_get_max_threads()));
    gemm<float>(shape, a.operand(), w.operand(), [&](const AccumulatorTile<float>& tile) {
        float& magnitude = largest[static_cast<std::size_t>(omp_get_thread_num())];
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i, token = paired_place(row);
            for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                float sum = 0;
                for (std::int64_t j = first; j < std::min(first + op.tile, tile.cols); ++j) {
                    const std::int64_t col = tile.col + j;
                    const auto gate = static_cast<float>(z[row][2 * col]), up = static_cast<float>(z[row][2 * col + 1]);
                    const float sigma = logistic(gate);
                    const auto gradient = swiglu_backward<float>(gate, up, factor * tile[i][j], sigma);
                    const F8E4M3 dgate(gradient.dgate), dup(gradient.dup);
                    dz[row][2 * col] = dz_t[2 * col][token] = dgate;
                    dz[row][2 * col + 1] = dz_t[2 * col + 1][token] = dup;
                    magnitude = std::fmax(magnitude, std::fmax(std::fabs(gradient.dgate), std::fabs(gradient.dup)));
                    sum += gradient.dot;
                    if (y_t) y_t[col][token] = F8E4M3(y_scale * swiglu<float>(gate, up, sigma));
                }
                dot[(tile.col + first) / op.tile][row] = sum / dz_scale;
            }
        }
    });
    for (const float magnitude : largest) *amax = std::fmax(*amax, magnitude / dz_scale);
}

}  // namespace coda::cpu
