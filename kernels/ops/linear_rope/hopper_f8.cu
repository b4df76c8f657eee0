// linear_rope, FP8 factors - hopper.cu's program on accumulators of 8-bit operands
//
//   z   = undo acc + bias, acc = a wᵀ  (M, Nq), bias 0 where absent; a has been normalised, and undo is a scalar on the
//   device
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_rope/program.cuh"

namespace coda::hopper {

namespace {

/// The factor takes the place of the rows' rstd.
template <class Program>
struct RopeF8 : Program {
    struct Arguments {
        typename Program::Arguments program;
        const float* scale;
    };

    const float* scale;

    __device__ explicit RopeF8(const Arguments& given) : Program(given.program), scale(given.scale) {}
    __device__ void begin_rows(const Rows& rows) {
        Program::begin_rows(rows);
        this->rstd.value[0] = this->rstd.value[1] = __ldg(scale);
    }
};

using LinearRopeF8Kernels =
    Kernels<RopeF8<Rope>, Major::k, Major::k, tiles::F8<tiles::Rope>, tiles::F8<tiles::RopeSquare>>;
using LinearBiasRopeF8Kernels = Kernels<RopeF8<BiasRope>, Major::k, Major::k, tiles::F8<tiles::Square>>;
using LinearNormRopeF8Kernels = Kernels<RopeF8<NormRope>, Major::k, Major::k, tiles::F8<tiles::Square>>;

Problem problem_of(const LinearRope& op) {
    const Problem problem = f8_problem(op.name, op.a, op.w);
    require_operands(op, problem);
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const LinearRope& op, const Request& request) {
    if (op.gain) return LinearNormRopeF8Kernels::choose(problem_of(op), request);
    return op.bias ? LinearBiasRopeF8Kernels::choose(problem_of(op), request)
                   : LinearRopeF8Kernels::choose(problem_of(op), request);
}

template <>
Launch bind_f8(const LinearRope& op, const Plan& plan, const Memory& memory) {
    const float* undo = memory.at<float>(op.w.undo);
    if (op.gain)
        return LinearNormRopeF8Kernels::bind(problem_of(op), plan, memory, {{}, {op.out, op.pre}},
                                             {norm_arguments_of(op, memory), undo});
    if (op.bias)
        return LinearBiasRopeF8Kernels::bind(problem_of(op), plan, memory, {{}, {op.out}},
                                             {bias_arguments_of(op, memory), undo});
    return LinearRopeF8Kernels::bind(problem_of(op), plan, memory, {{}, {op.out}}, {arguments_of(op, memory), undo});
}

}  // namespace coda::hopper
