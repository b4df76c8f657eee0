// The epilogue programs of LinearResidualRms, without and with a bias, on accumulators of bf16 or FP8 operands:
// hopper.cu, hopper_f8.cu.
#pragma once

#include "kernels/core/integers.h"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/ops/linear_residual_rms/op.h"

namespace coda::hopper {

struct ResidualRms : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;  // residual, overwritten by x
    struct Arguments {
        float* square;  // (tiles, M)
    };
    static constexpr int kFetched = 4;  // pairs whose residual is loaded before the first is used

    const Arguments& arguments;
    TileLoad<Slot, 0> residual;
    TileStore<Slot, 0> x;
    RowSum square;

    __device__ explicit ResidualRms(const Arguments& given) : arguments(given) {}
    __device__ void begin_rows(const Rows&) { square.clear(); }
    __device__ void fetch(const Here& at) { residual.fetch(at); }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 old = residual[at];
        const float2 sum = {acc.x + old.x, acc.y + old.y};
        x.put(at, sum);
        square.add_product(at, sum.x, sum.x);
        square.add_product(at, sum.y, sum.y);
    }
    __device__ void end_rows(const Rows& rows) { square.write(rows, arguments.square, rows.tile_n()); }
};

/// For tiles of 128x128: with a vector over N, 192x128 would spill.
struct BiasResidualRms : ResidualRms {
    struct Arguments {
        ResidualRms::Arguments residual;
        const float* bias;  // (N)
    };

    const Arguments& added;
    RowVector<Slot> bias;

    __device__ explicit BiasResidualRms(const Arguments& given) : ResidualRms(given.residual), added(given) {}

    __device__ void begin_slot(const Rows& rows, int column) {
        bias = {};  // 0 beyond the matrix, as everything that a row's sum has there
        bias.begin_slot(rows, column, added.bias);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 add = bias[at];
        ResidualRms::visit({acc.x + add.x, acc.y + add.y}, at);
    }
};

/// The GEMM as the epilogue needs it. Throws Error where an operand of the epilogue does not fit.
inline Problem with_epilogue(const LinearResidualRms& op, Problem problem) {
    problem.partial_columns = op.tile;
    if (op.bias) require_operand(op.name, "bias", op.bias, 1, problem.n, DType::f32);
    require_operand(op.name, "residual", op.residual, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "x", op.x, problem.m, problem.n, DType::bf16);
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "square", op.square, ceil_div(problem.n, op.tile), problem.m, DType::f32);
    return problem;
}

}  // namespace coda::hopper
