// linear_swiglu_f8 - gate and up projections with SwiGLU, from and to FP8
//
//   z   = scale acc, acc = a wᵀ        (M, 2f) bf16, columns 2i, 2i+1 = gate, up; a (M, K), w (2f, K) f8
//   y   = f8(y_scale silu(gate) up)    (M, f), from gate and up as stored, and y_t, its transposed copy
//   y_amax = max |silu(gate) up|       before rounding
#include "kernels/hopper/epilogue/tiles_f8.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op_f8.h"

namespace coda::hopper {

namespace {

constexpr Panel kZ{128}, kY{32, 1, 2};
constexpr TransposedPanel kYTransposed{32, 1, 2};

struct SwigluF8 : EpilogueProgram {
    using Slot = hopper::Slot<64, kZ, kYTransposed, kY>;
    struct Arguments {
        const float *scale, *y_scale;
        float* y_amax;
    };

    const Arguments& arguments;
    float scale, y_scale;
    TileStore<Slot, 0> z;
    HalfTileStoreF8<Slot, 2, 1> y;
    LargestMagnitude amax;

    __device__ explicit SwigluF8(const Arguments& given) : arguments(given) {}
    __device__ void begin_rows(const Rows&) { amax.clear(); }
    /// NOTE: read for each sub-tile: kept over the GEMM, the scales would spill.
    __device__ void begin_slot(const Rows&, int) {
        scale = *arguments.scale;
        y_scale = *arguments.y_scale;
    }
    __device__ void visit(float2 acc, const Here& at) {
        const auto [gate, up] = z.put(at, {scale * acc.x, scale * acc.y});
        const float value = gate * sigmoid_approximate(gate) * up;
        amax.add(value);
        y.put(at, y_scale * value);
    }
    __device__ void end_rows(const Rows& rows) { amax.raise(rows.thread, 1, arguments.y_amax); }
};

using LinearSwigluF8Kernels = Kernels<SwigluF8, Major::k, Major::k, tiles::F8<tiles::SwigluF8>,
                                      tiles::F8<tiles::SwigluF8Deep>, tiles::F8<tiles::SwigluF8Square>>;

Problem problem_of(const LinearSwigluF8& op) {
    constexpr DType kF8 = DType::f8e4m3;
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    const std::int64_t m = problem.m, f = problem.n / 2;
    require_operand(op.name, "a", op.a, m, problem.k, kF8);
    require_operand(op.name, "w", op.w, 2 * f, problem.k, kF8);
    require_operand(op.name, "scale", op.scale, 1, 1, DType::f32);
    if (op.z) require_operand(op.name, "z", op.z, m, 2 * f, DType::bf16);
    require_operand(op.name, "y_scale", op.y_scale, 1, 1, DType::f32);
    require_operand(op.name, "y", op.y, m, f, kF8);
    if (op.y_t) {
        require(m % op.kTokenMultiple == 0, op.name, ": M is ", m, ", not a multiple of ", op.kTokenMultiple,
                ": the transposed copies keep their tokens in pairs of each ", op.kTokenMultiple);
        require_operand(op.name, "y_t", op.y_t, f, m, kF8, ColumnOrder::paired);
    }
    require_operand(op.name, "y_amax", op.y_amax, 1, 1, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearSwigluF8& op, const Request& request) {
    return LinearSwigluF8Kernels::choose(problem_of(op), request);
}

template <>
Launch bind(const LinearSwigluF8& op, const Plan& plan, const Memory& memory) {
    return LinearSwigluF8Kernels::bind(
        problem_of(op), plan, memory, {{}, {op.z, op.y_t, op.y}},
        {memory.at<float>(op.scale), memory.at<float>(op.y_scale), memory.at<float>(op.y_amax)});
}

}  // namespace coda::hopper
