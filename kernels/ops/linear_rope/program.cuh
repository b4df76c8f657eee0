// The epilogue programs of LinearRope, without and with a bias, on accumulators of bf16 or FP8 operands: hopper.cu,
// hopper_f8.cu.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/core/limits.h"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/math/rope.h"
#include "kernels/ops/linear_rope/op.h"

namespace coda::hopper {

/// Columns that are not rotated read this in place of a row of the table.
__device__ const float2 no_rotation[16] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0},
                                           {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}};

struct Rope : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}>;
    struct Arguments {
        const float* rstd;              // (M), may be null
        const std::int32_t* positions;  // (M)
        const float2* rope;             // (positions, head_dim / 2): cos, sin
        int rotated, head_dim;
    };
    static constexpr int kFetched = 4;  // the angles of all eight pairs do not fit the registers of a 128x192 tile

    const Arguments& arguments;
    ColumnVector rstd;
    int angles[2];           // for each of the thread's rows, where its row of the table starts, in elements
    const float2* first[2];  // angles of the sub-tile's first pair
    float2 turn[Slot::kColumns / 8][2];
    TileStore<Slot, 0> out;

    __device__ explicit Rope(const Arguments& given) : arguments(given) {}

    __device__ void begin_rows(const Rows& rows) {
        rstd.begin_rows(rows, arguments.rstd, 1);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int position = rows.valid(half) ? __ldg(arguments.positions + rows.row(half)) : 0;
            angles[half] = position * (arguments.head_dim / 2);
        }
    }
    /// NOTE: heads are 64 or 128 columns, powers of two, so a sub-tile lies within one head.
    __device__ void begin_slot(const Rows& rows, int column) {
        const bool rotated = column < arguments.rotated;
        const float2* table = rotated ? arguments.rope : no_rotation;
        const int angle = (column & (arguments.head_dim - 1)) >> 1;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            first[half] = table + ((rotated ? angles[half] + angle : 0) + rows.thread.lane % 4);
    }
    __device__ void fetch(const Here& at) {
        turn[at.block][at.half] = ptx::load_ordered(&first[at.half][4 * at.block].x);
    }
    __device__ void visit(float2 acc, const Here& at) { rotate({acc.x * rstd[at], acc.y * rstd[at]}, at); }
    __device__ void rotate(const Pair<float>& z, const Here& at) {
        const float2 angle = turn[at.block][at.half];
        const Pair<float> rotated = rotate_pair(z, angle.x, angle.y);
        out.put(at, {rotated.first, rotated.second});
    }
};

/// For tiles of 128x128: with a bias 128x192 would spill. 128 divides N of most Qwen2 models, and 192 does not.
struct BiasRope : Rope {
    struct Arguments {
        Rope::Arguments rope;
        const float* bias;  // (N)
    };

    const Arguments& added;
    RowVector<Slot> bias;

    __device__ explicit BiasRope(const Arguments& given) : Rope(given.rope), added(given) {}

    __device__ void begin_slot(const Rows& rows, int column) {
        Rope::begin_slot(rows, column);
        bias.begin_slot(rows, column, added.bias);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 add = bias[at];
        rotate({fmaf(acc.x, rstd[at], add.x), fmaf(acc.y, rstd[at], add.y)}, at);
    }
};

inline Rope::Arguments arguments_of(const LinearRope& op, const Memory& memory) {
    return {memory.at<float>(op.rstd), memory.at<std::int32_t>(op.positions),
            reinterpret_cast<const float2*>(memory.at<float>(op.rope)), static_cast<int>(op.rotated),
            static_cast<int>(op.head_dim)};
}
inline BiasRope::Arguments bias_arguments_of(const LinearRope& op, const Memory& memory) {
    return {arguments_of(op, memory), memory.at<float>(op.bias)};
}

/// Throws Error where an operand of the epilogue does not fit the GEMM.
inline void require_operands(const LinearRope& op, const Problem& problem) {
    require_operand(op.name, "out", op.out, problem.m, problem.n, DType::bf16);
    if (op.bias) require_operand(op.name, "bias", op.bias, 1, problem.n, DType::f32);
    require_operand(op.name, "positions", op.positions, 1, problem.m, DType::i32);
    require_operand(op.name, "rope", op.rope, op.rope.rows, op.head_dim, DType::f32);
    limits::require_none(op.name, limits::head_dim_problem("head_dim", op.head_dim));
    require(op.rope.count() / 2 <= std::numeric_limits<int>::max(), op.name, ": a table of ", op.rope.rows,
            " positions is too long");
    require(op.rope.ld == op.head_dim && op.rotated % op.head_dim == 0 && op.rotated <= problem.n, op.name,
            ": rotated ", op.rotated, " must be whole heads of ", op.head_dim, " within ", problem.n, " columns");
}

}  // namespace coda::hopper
