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
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op_f8.h"

namespace coda::hopper {

namespace {

constexpr Panel kZ{128, 2, 1}, kDz{64, 2, 1};
constexpr TransposedPanel kDzTransposed{64, 2}, kYTransposed{32};

template <bool kMakesY>
using SwigluSlot =
    std::conditional_t<kMakesY, Slot<32, kZ, kDz, kDzTransposed, kYTransposed>, Slot<32, kZ, kDz, kDzTransposed>>;

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
    static constexpr int kFetched = kMakesY ? 2 : 0;  // with y, a whole sub-tile's z would spill

    const Arguments& arguments;
    float factor;  // of the accumulator, to dz_scale dy
    float y_scale = 1;
    WideTileLoadInOrder<Slot, 0, !kMakesY> z;
    WideTileStoreF8<Slot, 1, 2> dz;
    std::conditional_t<kMakesY, TransposedStoreF8<Slot, kMakesY ? 3 : 2>, NoStore> y_t;
    RowSum dot;
    LargestMagnitude amax;

    __device__ explicit SwigluBackwardF8(const Arguments& given)
        : arguments(given), factor(kMakesY ? 0 : __ldg(given.scale) * __ldg(given.dz_scale)) {}

    /// dz of one pair, times dz_scale; `dy` times dz_scale.
    __device__ float2 gradient(float dy, float2 gate_up, float& y, const Here& at) {
        const auto [gate, up] = gate_up;
        const float sigma = sigmoid_approximate(gate);
        const float silu = gate * sigma;
        y = silu * up;
        const float slope = fmaf(sigma, up - y, y);
        dot.add_product(at, dy, fmaf(gate, slope, y));
        const float2 result = {dy * slope, dy * silu};
        amax.add(result.x);
        amax.add(result.y);
        return result;
    }
    __device__ void begin_rows(const Rows&) {
        dot.clear();
        amax.clear();
    }
    /// NOTE: with y, the scales are read for each sub-tile: kept over the GEMM, they would spill a register.
    __device__ void begin_slot(const Rows&, int) {
        if constexpr (kMakesY) {
            factor = *arguments.scale * *arguments.dz_scale;
            y_scale = *arguments.y_scale;
        }
    }
    __device__ void fetch(const Here& at) { z.fetch(at); }
    __device__ void visit(float2 acc, const Here& at) {
        const TwoPairs saved = z[at];
        float2 y;
        const float2 first = gradient(acc.x * factor, saved.first, y.x, at);
        const float2 second = gradient(acc.y * factor, saved.second, y.y, at);
        dz.put(at, first, second);
        y_t.put(at, {y_scale * y.x, y_scale * y.y});
    }
    __device__ void end_rows(const Rows& rows) {
        const float inverse = __frcp_rn(*arguments.dz_scale);
        dot.sum[0] *= inverse;
        dot.sum[1] *= inverse;
        dot.write(rows, arguments.dot, rows.tile_n());
        amax.raise(rows.thread, inverse, arguments.dz_amax);
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
