// linear_head_dot, FP8 factors - hopper.cu's program on undo acc, acc = a wᵀ of 8-bit operands. w is the transposed
// copy (H hd, K), and undo a scalar on the device.
#include "kernels/hopper/epilogue/scaled_program.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_head_dot/program.cuh"

namespace coda::hopper {

namespace {

template <class... Tiles>
using HeadDotF8Kernels = Kernels<Scaled<HeadDot>, Major::k, Major::k, tiles::F8<Tiles>...>;

Problem problem_of(const LinearHeadDot& op) {
    const Problem problem = f8_problem(op.name, op.a, op.w);
    require_operands(op, problem);
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const LinearHeadDot& op, const Request& request) {
    return with_tiles_of_heads<HeadDotF8Kernels>(op,
                                                 [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind_f8(const LinearHeadDot& op, const Plan& plan, const Memory& memory) {
    return with_tiles_of_heads<HeadDotF8Kernels>(op, [&](auto kernels) {
        return kernels.bind(problem_of(op), plan, memory, {{op.o}, {op.out}},
                            {arguments_of(op, memory), memory.at<float>(op.w.undo)});
    });
}

}  // namespace coda::hopper
