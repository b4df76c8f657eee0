// linear_swiglu, FP8 factors - gate and up projections with SwiGLU, from and to FP8
//
//   z    = undo acc,  acc = a wᵀ       columns 2i, 2i+1 = gate, up; a (M, K), w (2f, K) f8
//   z_t  = f8(z_scale z)ᵀ              (2f, M), for the backward pass; z_amax = max |z|, before rounding
//   y    = f8(y_scale silu(gate) up)   (M, f), and y_t, its transposed copy; y_amax = max |silu(gate) up|, likewise
#include "kernels/hopper/epilogue/tiles_f8.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/ptx/basic_block.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op.h"

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
    /// The sigmoid carries the factor y_scale. It is a power of two, whose reciprocal is exact: no bit of y depends on
    /// the order.
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

Problem problem_of(const LinearSwiglu& op) {
    const Problem problem = f8_problem(op.name, op.a, op.w);
    require_rounded(op.name, op.z_names, op.z.codes, problem.m, problem.n, false);
    require_rounded(op.name, op.y_names, op.y.codes, problem.m, problem.n / 2);
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const LinearSwiglu& op, const Request& request) {
    return LinearSwigluF8Kernels::choose(problem_of(op), request);
}

template <>
Launch bind_f8(const LinearSwiglu& op, const Plan& plan, const Memory& memory) {
    const Rounded &z = op.z.codes, &y = op.y.codes;
    return LinearSwigluF8Kernels::bind(problem_of(op), plan, memory, {{}, {z.columns, y.columns, y.rows}},
                                       {memory.at<float>(op.w.undo), memory.at<float>(z.scale),
                                        memory.at<float>(y.scale), memory.at<float>(z.amax), memory.at<float>(y.amax)});
}

}  // namespace coda::hopper
