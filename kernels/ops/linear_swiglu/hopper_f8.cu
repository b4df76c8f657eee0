// linear_swiglu_f8 - gate and up projections with SwiGLU, from and to FP8
//
//   z    = scale acc, acc = a wᵀ       columns 2i, 2i+1 = gate, up; a (M, K), w (2f, K) f8
//   z_t  = f8(z_scale z)ᵀ              (2f, M), for the backward pass; z_amax = max |z|, before rounding
//   y    = f8(y_scale silu(gate) up)   (M, f), and y_t, its transposed copy; y_amax = max |silu(gate) up|, likewise
#include "kernels/hopper/epilogue/tiles_f8.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/ptx/basic_block.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op_f8.h"

namespace coda::hopper {

namespace {

constexpr TransposedPanel kZTransposed{64}, kYTransposed{32, 1, 2};
constexpr Panel kY{32, 1, 2};

struct SwigluF8 : EpilogueProgram {
    using Slot = hopper::Slot<64, kZTransposed, kYTransposed, kY>;
    struct Arguments {
        const float *scale, *z_scale, *y_scale;
        float *z_amax, *y_amax;
    };

    const Arguments& arguments;
    float scale, z_scale;
    float y_inverse;  // of y_scale
    TransposedStoreF8<Slot, 0> z;
    HalfTileStoreF8<Slot, 2, 1> y;
    LargestMagnitude z_amax, y_amax;

    __device__ explicit SwigluF8(const Arguments& given) : arguments(given) {}
    __device__ void begin_rows(const Rows&) {
        z_amax.clear();
        y_amax.clear();
    }
    /// NOTE: read for each sub-tile: kept over the GEMM, the scales would spill.
    __device__ void begin_slot(const Rows&, int) {
        scale = *arguments.scale;
        z_scale = *arguments.z_scale;
        y_inverse = ptx::reciprocal_approximate(*arguments.y_scale);
    }
    /// The sigmoid takes up y_scale, a power of two, whose reciprocal is exact: no bit of y depends on the order.
    __device__ void visit(float2 acc, const Here& at) {
        // NOTE: as one block, the sub-tile would spill.
        if (at.block == 4 && at.half == 0) ptx::end_basic_block(at.slot);
        const float gate = scale * acc.x, up = scale * acc.y;
        const float2 scaled = {z_scale * gate, z_scale * up};
        z_amax.add(scaled);
        z.put(at, scaled);
        const float sigma = ptx::reciprocal_approximate(fmaf(exp2_approximate(-kLog2e * gate), y_inverse, y_inverse));
        const float value = gate * sigma * up;
        y_amax.add(value);
        y.put(at, value);
    }
    __device__ void end_rows(const Rows& rows) {
        z_amax.raise(rows.thread, ptx::reciprocal_approximate(*arguments.z_scale), arguments.z_amax);
        y_amax.raise(rows.thread, ptx::reciprocal_approximate(*arguments.y_scale), arguments.y_amax);
    }
};

using LinearSwigluF8Kernels =
    Kernels<SwigluF8, Major::k, Major::k, tiles::F8<tiles::SwigluF8>, tiles::F8<tiles::SwigluF8Square>>;

Problem problem_of(const LinearSwigluF8& op) {
    constexpr DType kF8 = DType::f8e4m3;
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    const std::int64_t m = problem.m, f = problem.n / 2;
    require_operand(op.name, "a", op.a, m, problem.k, kF8);
    require_operand(op.name, "w", op.w, 2 * f, problem.k, kF8);
    require_operand(op.name, "scale", op.scale, 1, 1, DType::f32);
    require(m % op.kTokenMultiple == 0, op.name, ": M is ", m, ", not a multiple of ", op.kTokenMultiple,
            ": the transposed copies keep their tokens in pairs of each ", op.kTokenMultiple);
    require_operand(op.name, "z_scale", op.z_scale, 1, 1, DType::f32);
    require_operand(op.name, "z_t", op.z_t, 2 * f, m, kF8, ColumnOrder::paired);
    require_operand(op.name, "z_amax", op.z_amax, 1, 1, DType::f32);
    require_operand(op.name, "y_scale", op.y_scale, 1, 1, DType::f32);
    require_operand(op.name, "y", op.y, m, f, kF8);
    require_operand(op.name, "y_t", op.y_t, f, m, kF8, ColumnOrder::paired);
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
        problem_of(op), plan, memory, {{}, {op.z_t, op.y_t, op.y}},
        {memory.at<float>(op.scale), memory.at<float>(op.z_scale), memory.at<float>(op.y_scale),
         memory.at<float>(op.z_amax), memory.at<float>(op.y_amax)});
}

}  // namespace coda::hopper
