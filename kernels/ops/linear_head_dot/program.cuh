// The epilogue program of LinearHeadDot, on accumulators of bf16 or FP8 operands: hopper.cu, hopper_f8.cu.
#pragma once

#include "kernels/core/limits.h"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_head_dot/op.h"

namespace coda::hopper {

struct HeadDot : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;  // o, overwritten by out
    struct Arguments {
        float* delta;             // (H, M)
        int head_dim, head_bits;  // 1 << head_bits = head_dim
    };

    const Arguments& arguments;
    TileLoad<Slot, 0> o;
    TileStore<Slot, 0> out;
    RowSum delta;

    __device__ explicit HeadDot(const Arguments& given) : arguments(given) {}
    __device__ void begin_rows(const Rows&) { delta.clear(); }
    __device__ void fetch(const Here& at) { o.fetch(at); }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 output = o[at];
        const float2 rounded = out.put(at, acc);
        delta.add_product(at, output.x, rounded.x);
        delta.add_product(at, output.y, rounded.y);
    }
    /// NOTE: heads are 64 or 128 columns, so a head ends where a sub-tile ends.
    __device__ void end_slot(const Rows& rows, int column) {
        const int end = column + Slot::kColumns;
        if ((end & (arguments.head_dim - 1)) != 0 || end > rows.columns) return;
        delta.write(rows, arguments.delta, column >> arguments.head_bits);
        delta.clear();
    }
};

/// Calls fn with the kernels of tiles that hold whole heads.
template <template <class...> class Kernels, class Fn>
auto with_tiles_of_heads(const LinearHeadDot& op, const Fn& fn) {
    if (op.head_dim == 64) return fn(Kernels<tiles::InPlace, tiles::InPlaceMedium>{});
    return fn(Kernels<tiles::InPlace>{});
}

inline HeadDot::Arguments arguments_of(const LinearHeadDot& op, const Memory& memory) {
    return {memory.at<float>(op.delta), static_cast<int>(op.head_dim), op.head_dim == 64 ? 6 : 7};
}

/// Throws Error where an operand of the epilogue does not fit the GEMM.
inline void require_operands(const LinearHeadDot& op, const Problem& problem) {
    limits::require_none(op.name, limits::head_dim_problem("head_dim", op.head_dim));
    require_operand(op.name, "o", op.o, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "out", op.out, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "delta", op.delta, problem.n / op.head_dim, problem.m, DType::f32);
}

}  // namespace coda::hopper
