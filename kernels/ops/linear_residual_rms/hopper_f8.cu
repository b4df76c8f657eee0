// linear_residual_rms, FP8 factors - hopper.cu's program on undo acc, acc = a wᵀ of 8-bit operands. undo is a scalar on
// the device.
#include "kernels/hopper/epilogue/scaled_program.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_residual_rms/program.cuh"

namespace coda::hopper {

namespace {

template <class... Tiles>
using ResidualRmsF8Kernels = Kernels<Scaled<ResidualRms>, Major::k, Major::k, tiles::F8<Tiles>...>;

/// Calls fn with the kernels whose partials have the op's columns.
template <class Fn>
auto with_kernels(const LinearResidualRms& op, const Fn& fn) {
    if (op.tile == tiles::InPlaceMedium::config.n) return fn(ResidualRmsF8Kernels<tiles::InPlaceMedium>{});
    return fn(ResidualRmsF8Kernels<tiles::ResidualRms, tiles::InPlace>{});
}

Problem problem_of(const LinearResidualRms& op) { return with_epilogue(op, f8_problem(op.name, op.a, op.w)); }

}  // namespace

template <>
Plan choose_f8(const LinearResidualRms& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind_f8(const LinearResidualRms& op, const Plan& plan, const Memory& memory) {
    return with_kernels(op, [&](auto kernels) {
        return kernels.bind(problem_of(op), plan, memory, {{op.residual}, {op.x}},
                            {{memory.at<float>(op.square)}, memory.at<float>(op.w.undo)});
    });
}

}  // namespace coda::hopper
