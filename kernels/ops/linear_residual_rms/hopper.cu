// linear_residual_rms - closes a residual branch and opens the next norm (K4)
//
//   x      = acc + bias + residual     (M, N) bf16    residual stream; bias 0 where absent
//   square = Σ x² over the tile        (tiles, M) fp32, from x before rounding
#include <type_traits>

#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_residual_rms/op.h"
#include "kernels/ops/linear_residual_rms/program.cuh"

namespace coda::hopper {

namespace {

template <class Program, class... Tiles>
using KMajor = Kernels<Program, Major::k, Major::k, Tiles...>;

/// Calls fn with the kernels whose partials have the op's columns.
template <class Fn>
auto with_kernels(const LinearResidualRms& op, const Fn& fn) {
    if (op.bias) return fn(KMajor<BiasResidualRms, tiles::InPlace>{});
    if (op.tile == tiles::InPlaceMedium::config.n) return fn(KMajor<ResidualRms, tiles::InPlaceMedium>{});
    return fn(KMajor<ResidualRms, tiles::ResidualRms, tiles::InPlace>{});
}

Problem problem_of(const LinearResidualRms& op) {
    return with_epilogue(op, linear_problem(op.name, op.a, op.w, WeightLayout::out_in));
}

}  // namespace

template <>
Plan choose(const LinearResidualRms& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearResidualRms& op, const Plan& plan, const Memory& memory) {
    const ResidualRms::Arguments arguments{memory.at<float>(op.square)};
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        const TileOperands<typename Kernels::Program> operands{{op.residual}, {op.x}};
        if constexpr (std::is_same_v<typename Kernels::Program, BiasResidualRms>)
            return kernels.bind(problem_of(op), plan, memory, operands, {arguments, memory.at<float>(op.bias)});
        else
            return kernels.bind(problem_of(op), plan, memory, operands, arguments);
    });
}

}  // namespace coda::hopper
