// The epilogue programs of LinearRope, plain, with a bias and with a norm of heads, on accumulators of bf16 or FP8
// operands: hopper.cu, hopper_f8.cu.
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

/// Columns that have no norm read this in place of its weights.
__device__ const float2 no_gain[16] = {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1},
                                       {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};

struct Rope : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}>;
    struct Arguments {
        const float* rstd;              // (M), may be null
        const std::int32_t* positions;  // (M)
        const float2* rope;             // (positions, head_dim / 2): cos, sin
        int rotated, head_dim;
    };

    const Arguments& arguments;
    ColumnVector<> rstd;
    ColumnVector<std::int32_t> position;
    int angles[2];  // for each of the thread's rows, where its row of the table starts, in elements
    float2 turn[Slot::kColumns / 8][2];  // of the sub-tile's pairs
    TileStore<Slot, 0> out;

    __device__ explicit Rope(const Arguments& given) : arguments(given) {}

    __device__ void load_rows(const Rows& rows) {
        rstd.load_rows(rows, arguments.rstd, 1);
        position.load_rows(rows, arguments.positions, 0);
    }
    __device__ void begin_rows(const Rows&) {
        rstd.begin_rows();
        position.begin_rows();
#pragma unroll
        for (int half = 0; half < 2; ++half) angles[half] = position.value[half] * (arguments.head_dim / 2);
    }
    /// NOTE: heads are 64 or 128 columns, powers of two, so a sub-tile lies within one head.
    __device__ void begin_slot(const Rows& rows, int column) {
        const bool rotated = column < arguments.rotated;
        const float2* table = rotated ? arguments.rope : no_rotation;
        const int angle = (column & (arguments.head_dim - 1)) >> 1;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2* first = table + ((rotated ? angles[half] + angle : 0) + rows.thread.lane % 4);
#pragma unroll
            for (int block = 0; block < Slot::kColumns / 8; ++block)
                turn[block][half] = ptx::load_ordered(&first[4 * block].x);
        }
    }
    __device__ void visit(float2 acc, const Here& at) { rotate({acc.x * rstd[at], acc.y * rstd[at]}, at); }
    __device__ void rotate(const Pair<float>& z, const Here& at) {
        const float2 angle = turn[at.block][at.half];
        const Pair<float> rotated = rotate_pair(z, angle.x, angle.y);
        out.put(at, {rotated.first, rotated.second});
    }
};

/// A bias where nothing is rotated, in models of learned positions.
struct Bias : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}>;
    struct Arguments {
        const float* rstd;  // (M), may be null
        const float* bias;  // (N)
    };

    const Arguments& arguments;
    ColumnVector<> rstd;
    RowVector<Slot> bias;
    TileStore<Slot, 0> out;

    __device__ explicit Bias(const Arguments& given) : arguments(given) {}
    __device__ void load_rows(const Rows& rows) { rstd.load_rows(rows, arguments.rstd, 1); }
    __device__ void begin_rows(const Rows&) { rstd.begin_rows(); }
    __device__ void begin_slot(const Rows& rows, int column) { bias.begin_slot(rows, column, arguments.bias); }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 add = bias[at];
        out.put(at, {fmaf(acc.x, rstd[at], add.x), fmaf(acc.y, rstd[at], add.y)});
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

/// For tiles of 128 columns, which hold whole heads: a thread has all of its columns of a head in its accumulators, and
/// its quad has the rest. So the statistic of a head is there before the first pair of it is stored.
struct NormRope : Rope {
    using Slot = hopper::Slot<32, Panel{64}, Panel{64}>;  // out; z of q and k heads, whose matrix ends before v heads
    struct Arguments {
        Rope::Arguments rope;
        const float2* gain;  // (2, head_dim / 2)
        float* rho;          // (H + Hk, M), may be null
        std::int64_t rho_ld;
        int queries, head_bits;  // 1 << head_bits = head_dim
        float eps;
    };

    const Arguments& added;
    float rho[2][2];  // of each 64 columns of the tile and each of the thread's rows; 1 of v heads
    float factor[2];  // of the sub-tile
    float2 gain[Slot::kColumns / 8];
    TileStore<Slot, 1> pre;

    __device__ explicit NormRope(const Arguments& given) : Rope(given.rope), added(given) {}

    template <int kFloats>
    __device__ void measure(const Rows& rows, const float (&acc)[kFloats]) {
        static_assert(kFloats == 64, "rho is of tiles of 128 columns");
        const bool wide = added.head_bits == 7;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float square[2] = {};
#pragma unroll
            for (int i = 0; i < kFloats; i += 4)
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const float value = acc[i + 2 * half + j];
                    square[i / 32] = fmaf(value, value, square[i / 32]);
                }
            const float first = quad_sum(square[0]), second = quad_sum(square[1]), both = first + second;
            // A mean of squares of z, whose factor is rstd.
            const float mean =
                this->rstd.value[half] * this->rstd.value[half] / static_cast<float>(1 << added.head_bits);
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                const int column = rows.column + 64 * part;
                const bool normed = column < arguments.rotated;
                const float sum = wide ? both : part == 0 ? first : second;
                rho[part][half] = normed ? rsqrtf(fmaf(sum, mean, added.eps)) : 1.0f;
                const bool writes = normed && added.rho != nullptr && rows.valid(half) && rows.thread.lane % 4 == 0;
                if (writes && (part == 0 || !wide))
                    added.rho[(column >> added.head_bits) * added.rho_ld + rows.row(half)] = rho[part][half];
            }
        }
    }
    __device__ void begin_slot(const Rows& rows, int column) {
        Rope::begin_slot(rows, column);
        const bool second = column - rows.column >= 64;
        const int in_head = (column & (arguments.head_dim - 1)) >> 1;
        const float2* weights = column < added.queries       ? added.gain + in_head
                                : column < arguments.rotated ? added.gain + arguments.head_dim / 2 + in_head
                                                             : no_gain;
#pragma unroll
        for (int half = 0; half < 2; ++half) factor[half] = second ? rho[1][half] : rho[0][half];
#pragma unroll
        for (int block = 0; block < Slot::kColumns / 8; ++block)
            gain[block] = ptx::load_ordered(&weights[4 * block + rows.thread.lane % 4].x);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 z = {acc.x * rstd[at], acc.y * rstd[at]}, weight = gain[at.block];
        pre.put(at, z);
        rotate({weight.x * (factor[at.half] * z.x), weight.y * (factor[at.half] * z.y)}, at);
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
inline NormRope::Arguments norm_arguments_of(const LinearRope& op, const Memory& memory) {
    return {arguments_of(op, memory),     reinterpret_cast<const float2*>(memory.at<float>(op.gain)),
            memory.at<float>(op.rho),     op.rho.ld,
            static_cast<int>(op.queries), op.head_dim == 64 ? 6 : 7,
            static_cast<float>(op.eps)};
}

/// Throws Error where an operand of the epilogue does not fit the GEMM.
inline void require_operands(const LinearRope& op, const Problem& problem) {
    limits::require_none(op.name, limits::head_dim_problem("head_dim", op.head_dim));
    require_heads(op, problem.n);
    require_operand(op.name, "out", op.out, problem.m, problem.n, DType::bf16);
    if (op.bias) require_operand(op.name, "bias", op.bias, 1, problem.n, DType::f32);
    require_operand(op.name, "positions", op.positions, 1, problem.m, DType::i32);
    require_operand(op.name, "rope", op.rope, op.rope.rows, op.head_dim, DType::f32);
    require(op.rope.count() / 2 <= std::numeric_limits<int>::max(), op.name, ": a table of ", op.rope.rows,
            " positions is too long");
    require(op.rope.ld == op.head_dim, op.name, ": rope has gaps between its rows (ld ", op.rope.ld, ")");
    if (!op.gain) return;
    require_operand(op.name, "gain", op.gain, 2, op.head_dim, DType::f32);
    require(op.gain.ld == op.head_dim, op.name, ": gain has gaps between its rows (ld ", op.gain.ld, ")");
    if (op.pre) require_operand(op.name, "pre", op.pre, problem.m, op.rotated, DType::bf16);
    if (op.rho) require_operand(op.name, "rho", op.rho, op.rotated / op.head_dim, problem.m, DType::f32);
}

}  // namespace coda::hopper
