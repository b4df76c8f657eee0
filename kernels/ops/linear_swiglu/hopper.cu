// linear_swiglu - gate and up projections with SwiGLU (K2), after the norm's 1/rms (K6)
//
//   z = acc rstd                       (M, 2f), columns 2i, 2i+1 = gate, up; rstd 1 where absent; kept for backward
//   y = silu(gate) up                  (M, f), from gate and up as stored
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op.h"

namespace coda::hopper {

namespace {

struct Swiglu : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}, Panel{32, 1, 2}>;
    struct Arguments {
        const float* rstd;  // (M), may be null
    };

    const Arguments& arguments;
    ColumnVector<> rstd;
    TileStore<Slot, 0> z;
    HalfTileStore<Slot, 1> y;

    __device__ explicit Swiglu(const Arguments& given) : arguments(given) {}
    __device__ void load_rows(const Rows& rows) { rstd.load_rows(rows, arguments.rstd, 1); }
    __device__ void begin_rows(const Rows&) { rstd.begin_rows(); }
    __device__ void visit(float2 acc, const Here& at) {
        const auto [gate, up] = z.put(at, {acc.x * rstd[at], acc.y * rstd[at]});
        y.put(at, gate * sigmoid_approximate(gate) * up);
    }
};

using LinearSwigluKernels = Kernels<Swiglu, Major::k, Major::k, tiles::Swiglu, tiles::SwigluShort>;

Problem problem_of(const LinearSwiglu& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    if (op.z) require_operand(op.name, "z", op.z, problem.m, problem.n, DType::bf16);
    if (op.y) require_operand(op.name, "y", op.y, problem.m, problem.n / 2, DType::bf16);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearSwiglu& op, const Request& request) {
    return LinearSwigluKernels::choose(problem_of(op), request);
}

template <>
Launch bind(const LinearSwiglu& op, const Plan& plan, const Memory& memory) {
    return LinearSwigluKernels::bind(problem_of(op), plan, memory, {{}, {op.z, op.y}}, {memory.at<float>(op.rstd)});
}

}  // namespace coda::hopper
