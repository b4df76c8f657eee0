// linear_residual_rms - closes a residual branch and opens the next norm (K4)
//
//   x      = acc + residual            (M, N) bf16    residual stream
//   square = Σ x² over the tile        (tiles, M) fp32, from x before rounding
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_residual_rms/op.h"

namespace coda::hopper {

namespace {

struct ResidualRms : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;  // residual, overwritten by x
    struct Arguments {
        float* square;  // (tiles, M)
    };
    static constexpr int kFetched = 4;  // with tiles of 192 rows, all sixteen pairs of a sub-tile would spill

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

using LinearResidualRmsKernels = Kernels<ResidualRms, Major::k, Major::k, tiles::ResidualRms, tiles::InPlace>;

Problem problem_of(const LinearResidualRms& op) {
    Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    problem.partial_columns = op.tile;
    require_operand(op.name, "residual", op.residual, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "x", op.x, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "square", op.square, ceil_div(problem.n, op.tile), problem.m, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearResidualRms& op, const Request& request) {
    return LinearResidualRmsKernels::choose(problem_of(op), request);
}

template <>
Launch bind(const LinearResidualRms& op, const Plan& plan, const Memory& memory) {
    return LinearResidualRmsKernels::bind(problem_of(op), plan, memory, {{op.residual}, {op.x}},
                                          {memory.at<float>(op.square)});
}

}  // namespace coda::hopper
