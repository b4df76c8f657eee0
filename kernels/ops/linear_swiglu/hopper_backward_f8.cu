// linear_swiglu_backward_f8 - dgrad of the down projection and the backward pass of SwiGLU, from and to FP8
//
//   dy   = scale acc, acc = a wᵀ       (M, f), a (M, K), w (f, K) f8; (g, u) the pairs of z (M, 2f) bf16; s = g σ(g)
//   dz   = f8(dz_scale (dy u (σ + s (1 - σ)), dy s))   (M, 2f) pairs interleaved, and dz_t, its transposed copy
//   y_t  = f8(y_scale s u)ᵀ            (f, M), for the wgrad, where the forward pass did not keep it
//   dot  = Σ g dg + u du over the tile (tiles, M) fp32, before rounding; dz_amax = max |dz|, likewise
#include <type_traits>

#include "kernels/hopper/epilogue/tiles_f8.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/ptx/basic_block.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op_f8.h"

namespace coda::hopper {

namespace {

constexpr Panel kZ{128, 2, 1}, kDz{64, 2, 1};
constexpr TransposedPanel kDzTransposed{64, 2}, kYTransposed{32};

/// Both copies of dz take the bytes of z, so that slots for half of a tile fit, and its z arrives under the GEMM.
template <bool kMakesY>
using SwigluSlot = std::conditional_t<kMakesY, Slot<32, kZ, Over{kDz, 0}, Over{kDzTransposed, 0}, kYTransposed>,
                                      Slot<32, kZ, Over{kDz, 0}, Over{kDzTransposed, 0}>>;

struct NoStore {
    __device__ void put(const Here&, float2) {}
};

template <bool kMakesY>
struct SwigluBackwardF8 : EpilogueProgram {
    using Slot = SwigluSlot<kMakesY>;
    struct Arguments {
        const float *scale, *dz_scale, *y_scale;  // y_scale may be null
        float* dz_amax;
        float* dot;  // (tiles, M)
    };

    static constexpr bool kHalves = false;
    static constexpr int kResidentBytes = 8 << 20;  // z and both copies of dz pass through L2 too

    const Arguments& arguments;
    float dz_inverse;  // of dz_scale
    float inverse;     // of scale dz_scale, the factor from acc to dz_scale dy
    float y_factor;    // from scale dz_scale y to y_scale y
    WideTileLoadInOrder<Slot, 0> z;
    WideTileStoreF8<Slot, 1, 2> dz;
    std::conditional_t<kMakesY, TransposedStoreF8<Slot, kMakesY ? 3 : 2>, NoStore> y_t;
    RowSum dot;
    LargestMagnitude amax;

    __device__ explicit SwigluBackwardF8(const Arguments& given)
        : arguments(given),
          dz_inverse(uniform(ptx::reciprocal_approximate(__ldg(given.dz_scale)))),
          inverse(uniform(ptx::reciprocal_approximate(__ldg(given.scale)) * dz_inverse)),
          y_factor(kMakesY ? uniform(__ldg(given.y_scale) * inverse) : 0) {}

    /// NOTE: the shuffle tells the compiler that the value is the same in all lanes: it may be in a uniform register.
    static __device__ float uniform(float value) { return __shfl_sync(0xffffffffu, value, 0); }

    /// dz of one pair, times dz_scale, and y times scale dz_scale. The sigmoid takes up that factor, and hands it on to
    /// silu, y and slope, so that no instruction scales the accumulator. It is a power of two: no bit of the results
    /// depends on the order. The reciprocal of a power of two is exact.
    __device__ float2 gradient(float acc, float2 gate_up, float& y, const Here& at) {
        const auto [gate, up] = gate_up;
        const float sigma = ptx::reciprocal_approximate(fmaf(exp2_approximate(-kLog2e * gate), inverse, inverse));
        const float silu = gate * sigma;
        y = silu * up;
        const float slope = fmaf(sigma, fmaf(-inverse, y, up), y);
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
        static_assert(kFetched == 0, "all of z has been read before the first pair is visited");
        if (at.block == 2 && at.half == 0) {
            ptx::end_basic_block(at.slot);  // NOTE: as one block, the sub-tile would spill
            // All warps have read z, where dz goes
            ptx::named_barrier_sync(1 + at.thread.warpgroup, kWarpgroupThreads);
            dz.store(at, 0);
        }
        const TwoPairs saved = z[at];
        float2 y;
        const float2 first = gradient(acc.x, saved.first, y.x, at);
        const float2 second = gradient(acc.y, saved.second, y.y, at);
        dz.put(at, first, second);
        if (at.block == 3 && at.half == 1) dz.store(at, 2);
        y_t.put(at, {y_factor * y.x, y_factor * y.y});
    }
    __device__ void end_rows(const Rows& rows) {
        dot.sum[0] *= dz_inverse;
        dot.sum[1] *= dz_inverse;
        dot.write(rows, arguments.dot, rows.tile_n());
        amax.raise(rows.thread, dz_inverse, arguments.dz_amax);
    }
};

/// Calls fn with the kernels of the variant that stores y_t, or of the one that does not.
template <class Fn>
auto with_kernels(const LinearSwigluBackwardF8& op, const Fn& fn) {
    if (op.y_t)
        return fn(Kernels<SwigluBackwardF8<true>, Major::k, Major::k, tiles::F8<tiles::SwigluBackwardF8AndY>>{});
    return fn(Kernels<SwigluBackwardF8<false>, Major::k, Major::k, tiles::F8<tiles::SwigluBackwardF8>,
                      tiles::F8<tiles::SwigluBackwardF8Shared>>{});
}

Problem problem_of(const LinearSwigluBackwardF8& op) {
    constexpr DType kF8 = DType::f8e4m3;
    Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    const std::int64_t m = problem.m, f = problem.n;
    problem.partial_columns = op.tile;
    require(m % op.kTokenMultiple == 0, op.name, ": M is ", m, ", not a multiple of ", op.kTokenMultiple,
            ": the transposed copies keep their tokens in pairs of each ", op.kTokenMultiple);
    require_operand(op.name, "a", op.a, m, problem.k, kF8);
    require_operand(op.name, "w", op.w, f, problem.k, kF8);
    require_operand(op.name, "scale", op.scale, 1, 1, DType::f32);
    require_operand(op.name, "z", op.z, m, 2 * f, DType::bf16);
    require_operand(op.name, "dz_scale", op.dz_scale, 1, 1, DType::f32);
    require_operand(op.name, "dz", op.dz, m, 2 * f, kF8);
    require_operand(op.name, "dz_t", op.dz_t, 2 * f, m, kF8, ColumnOrder::paired);
    require_operand(op.name, "dz_amax", op.dz_amax, 1, 1, DType::f32);
    if (op.y_t) {
        require_operand(op.name, "y_t", op.y_t, f, m, kF8, ColumnOrder::paired);
        require_operand(op.name, "y_scale", op.y_scale, 1, 1, DType::f32);
    }
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "dot", op.dot, ceil_div(f, op.tile), m, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearSwigluBackwardF8& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearSwigluBackwardF8& op, const Plan& plan, const Memory& memory) {
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        TileOperands<typename Kernels::Program> operands{{op.z}, {View{}, op.dz, op.dz_t}};
        if (op.y_t) operands.store[Kernels::Program::Slot::kPanels - 1] = op.y_t;
        return kernels.bind(problem_of(op), plan, memory, operands,
                            {memory.at<float>(op.scale), memory.at<float>(op.dz_scale), memory.at<float>(op.y_scale),
                             memory.at<float>(op.dz_amax), memory.at<float>(op.dot)});
    });
}

}  // namespace coda::hopper
