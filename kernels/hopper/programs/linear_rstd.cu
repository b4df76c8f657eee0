// linear_rstd - a product whose input rows still lack their norm's 1/rms
//
//   out = acc rstd                     (M, N); rstd is one factor per row, so it commutes with the product
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"

namespace coda::hopper {

namespace {

struct Rstd : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    struct Arguments {
        const float* rstd;  // (M)
    };

    const Arguments& arguments;
    ColumnVector rstd;
    TileStore<Slot, 0> out;

    __device__ explicit Rstd(const Arguments& given) : arguments(given) {}
    __device__ void begin_rows(const Rows& rows) { rstd.begin_rows(rows, arguments.rstd, 0); }
    __device__ void visit(float2 acc, const Here& at) { out.put(at, {acc.x * rstd[at], acc.y * rstd[at]}); }
};

}  // namespace

Launch prepare_op(const LinearRstd& op, const Memory& memory, const GemmChoice& choice) {
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    require_shape(problem, "out", op.out, problem.m, problem.n, DType::bf16);
    require_shape(problem, "rstd", op.rstd, 1, problem.m, DType::f32);
    return launch_quickest<Rstd, Major::k, Major::k, tiles::Medium, tiles::Square>(problem, memory, {{}, {op.out}},
                                                                                   {memory.at<float>(op.rstd)}, choice);
}

}  // namespace coda::hopper
