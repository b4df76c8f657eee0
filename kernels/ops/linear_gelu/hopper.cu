// linear_gelu - up projection of an MLP without a gate, with GELU, after the norm's 1/rms
//
//   z = acc rstd + bias                (M, f) bf16, rstd 1 and bias 0 where absent; kept for the backward pass
//   y = gelu(z)                        (M, f) bf16, from z as stored
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_gelu/gelu.cuh"
#include "kernels/ops/linear_gelu/op.h"

namespace coda::hopper {

namespace {

template <Gelu kind>
struct GeluForward : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}, Panel{64}>;
    struct Arguments {
        const float* rstd;  // (M), may be null
        const float* bias;  // (f), may be null
    };

    const Arguments& arguments;
    ColumnVector<> rstd;
    RowVector<Slot> bias;
    TileStore<Slot, 0> z;
    TileStore<Slot, 1> y;

    __device__ explicit GeluForward(const Arguments& given) : arguments(given) {}
    __device__ void load_rows(const Rows& rows) { rstd.load_rows(rows, arguments.rstd, 1); }
    __device__ void begin_rows(const Rows&) { rstd.begin_rows(); }
    __device__ void begin_slot(const Rows& rows, int column) {
        if (arguments.bias != nullptr) bias.begin_slot(rows, column, arguments.bias);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 add = bias[at];
        const float2 stored = z.put(at, {fmaf(acc.x, rstd[at], add.x), fmaf(acc.y, rstd[at], add.y)});
        y.put(at, {gelu_approximate<kind>(stored.x).y, gelu_approximate<kind>(stored.y).y});
    }
};

template <Gelu kind>
using LinearGeluKernels = Kernels<GeluForward<kind>, Major::k, Major::k, tiles::Gelu>;

Problem problem_of(const LinearGelu& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    if (op.z) require_operand(op.name, "z", op.z, problem.m, problem.n, DType::bf16);
    if (op.y) require_operand(op.name, "y", op.y, problem.m, problem.n, DType::bf16);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    if (op.bias) require_operand(op.name, "bias", op.bias, 1, problem.n, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearGelu& op, const Request& request) {
    return with_gelu(op.kind, [&]<Gelu kind>() { return LinearGeluKernels<kind>::choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearGelu& op, const Plan& plan, const Memory& memory) {
    return with_gelu(op.kind, [&]<Gelu kind>() {
        return LinearGeluKernels<kind>::bind(problem_of(op), plan, memory, {{}, {op.z, op.y}},
                                             {memory.at<float>(op.rstd), memory.at<float>(op.bias)});
    });
}

}  // namespace coda::hopper
