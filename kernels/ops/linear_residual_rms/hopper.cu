// linear_residual_rms - closes a residual branch and opens the next norm (K4)
//
//   x      = acc + bias + residual     (M, N) bf16    residual stream; bias 0 where absent
//   square = Σ x² over the tile        (tiles, M) fp32, from x before rounding
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_residual_rms/op.h"
#include "kernels/ops/linear_residual_rms/program.cuh"

namespace coda::hopper {

namespace {

using LinearResidualRmsKernels = Kernels<ResidualRms, Major::k, Major::k, tiles::ResidualRms, tiles::InPlace>;
using LinearBiasResidualRmsKernels = Kernels<BiasResidualRms, Major::k, Major::k, tiles::InPlace>;

Problem problem_of(const LinearResidualRms& op) {
    return with_epilogue(op, linear_problem(op.name, op.a, op.w, WeightLayout::out_in));
}

}  // namespace

template <>
Plan choose(const LinearResidualRms& op, const Request& request) {
    return op.bias ? LinearBiasResidualRmsKernels::choose(problem_of(op), request)
                   : LinearResidualRmsKernels::choose(problem_of(op), request);
}

template <>
Launch bind(const LinearResidualRms& op, const Plan& plan, const Memory& memory) {
    const ResidualRms::Arguments arguments{memory.at<float>(op.square)};
    if (op.bias)
        return LinearBiasResidualRmsKernels::bind(problem_of(op), plan, memory, {{op.residual}, {op.x}},
                                                  {arguments, memory.at<float>(op.bias)});
    return LinearResidualRmsKernels::bind(problem_of(op), plan, memory, {{op.residual}, {op.x}}, arguments);
}

}  // namespace coda::hopper
