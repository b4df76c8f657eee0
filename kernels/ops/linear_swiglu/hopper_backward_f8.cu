// linear_swiglu_backward, FP8 factors - dgrad of the down projection and the backward pass of SwiGLU, from and to FP8
//
//   dy   = undo acc,  acc = a wᵀ       (M, f), a (M, K), w (f, K) f8; (g, u) the pairs of z = z_tᵀ / z_scale, z_t
//                                      (2f, M) f8; s = g σ(g)
//   dz   = f8(dz_scale (dy u (σ + s (1 - σ)), dy s))   (M, 2f) pairs interleaved, and dz_t, its transposed copy
//   dot  = Σ g dg + u du over the tile (tiles, M) fp32, before rounding; dz_amax = max |dz|, likewise
#include "kernels/hopper/epilogue/tiles_f8.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/ptx/basic_block.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/linear_swiglu/op.h"

namespace coda::hopper {

namespace {

struct SwigluBackwardF8 : EpilogueProgram {
    using Slot = hopper::Slot<32, TransposedPanel{64, 2} /* z_t, then dz_t */, Panel{64, 2, 1} /* dz */>;
    struct Arguments {
        const float *scale, *z_scale, *dz_scale;
        float* dz_amax;
        float* dot;  // (tiles, M)
    };

    static constexpr bool kHalves = false;
    static constexpr int kFetched = Slot::kColumns / 4;  // all of z, before dz lies over it
    static constexpr int kResidentBytes = 8 << 20;       // z_t and both copies of dz pass through L2 too

    const Arguments& arguments;
    float z_inverse;     // of z_scale
    float exponent;      // from z_scale z to the exponent of 2 in σ
    float inverse;       // of scale dz_scale, the factor from acc to dz_scale dy
    float gate_inverse;  // of the factor from acc to dz_scale dy / z_scale
    WideTransposedLoadF8<Slot, 0> z;
    WideTileStoreF8<Slot, 1, 0> dz;
    RowSum dot;
    LargestMagnitude amax;

    __device__ explicit SwigluBackwardF8(const Arguments& given)
        : arguments(given),
          z_inverse(uniform(ptx::reciprocal_approximate(__ldg(given.z_scale)))),
          exponent(uniform(-kLog2e * z_inverse)),
          inverse(uniform(ptx::reciprocal_approximate(__ldg(given.scale) * __ldg(given.dz_scale)))),
          gate_inverse(uniform(inverse * __ldg(given.z_scale))) {}

    /// NOTE: the shuffle tells the compiler that the value is the same in all lanes: it may be in a uniform register.
    static __device__ float uniform(float value) { return __shfl_sync(kAllLanes, value, 0); }

    /// dz of one pair, times dz_scale. `gate` and `up` carry the factor z_scale. With c = scale dz_scale, the sigmoid
    /// is multiplied by c / z_scale, and what follows carries that factor: silu is c s, y is c z_scale s u, and slope
    /// is c u (σ + s (1 - σ)). So no instruction scales the accumulator, or gate and up. The scales are powers of two:
    /// no bit of the results depends on the order. The reciprocal of a power of two is exact.
    __device__ float2 gradient(float acc, float2 gate_up, const Here& at) {
        const auto [gate, up] = gate_up;
        const float sigma =
            ptx::reciprocal_approximate(fmaf(exp2_approximate(exponent * gate), gate_inverse, gate_inverse));
        const float silu = gate * sigma, y = silu * up;
        const float slope = fmaf(sigma, fmaf(-inverse, y, up), z_inverse * y);
        dot.add_product(at, acc, fmaf(gate, slope, y));
        const float2 result = {acc * slope, acc * silu};
        amax.add(result);
        return result;
    }
    __device__ void begin_rows(const Rows&) {
        dot.clear();
        amax.clear();
    }
    __device__ void fetch(const Here& at) { z.fetch(at); }
    __device__ void visit(float2 acc, const Here& at) {
        // NOTE: as one block, the sub-tile would spill.
        if (at.block == 2 && at.half == 0) ptx::end_basic_block(at.slot);
        const TwoPairs saved = z[at];
        dz.put(at, gradient(acc.x, saved.first, at), gradient(acc.y, saved.second, at));
    }
    __device__ void end_rows(const Rows& rows) {
        const float dz_inverse = ptx::reciprocal_approximate(*arguments.dz_scale);
        dot.sum[0] *= dz_inverse * z_inverse;
        dot.sum[1] *= dz_inverse * z_inverse;
        dot.write(rows, arguments.dot, rows.tile_n());
        amax.raise(rows.thread, dz_inverse, arguments.dz_amax);
    }
};

using LinearSwigluBackwardF8Kernels = Kernels<SwigluBackwardF8, Major::k, Major::k, tiles::F8<tiles::SwigluBackwardF8>,
                                              tiles::F8<tiles::SwigluBackwardF8Shared>>;

Problem problem_of(const LinearSwigluBackward& op) {
    Problem problem = f8_problem(op.name, op.a, op.w);
    const std::int64_t m = problem.m, f = problem.n;
    problem.partial_columns = op.tile;
    require_rounded(op.name, op.dz_names, op.dz.codes, m, 2 * f);
    require_operand(op.name, "z_scale", op.z_scale, 1, 1, DType::f32);
    require_operand(op.name, "z_t", op.z, 2 * f, m, DType::f8e4m3, ColumnOrder::paired);
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "dot", op.dot, ceil_div(f, op.tile), m, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const LinearSwigluBackward& op, const Request& request) {
    return LinearSwigluBackwardF8Kernels::choose(problem_of(op), request);
}

template <>
Launch bind_f8(const LinearSwigluBackward& op, const Plan& plan, const Memory& memory) {
    const Rounded& dz = op.dz.codes;
    return LinearSwigluBackwardF8Kernels::bind(
        problem_of(op), plan, memory, {{op.z}, {dz.columns, dz.rows}},
        {memory.at<float>(op.w.undo), memory.at<float>(op.z_scale), memory.at<float>(dz.scale),
         memory.at<float>(dz.amax), memory.at<float>(op.dot)});
}

}  // namespace coda::hopper
