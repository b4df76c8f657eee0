// linear_swiglu_backward - dgrad of the down projection and the backward pass of SwiGLU (K10)
//
//   dy  = rstd acc, acc = a w          (M, f), w (K, f); (g, u) the pairs of z (M, 2f); σ = sigmoid(g), s = g σ
//   dz  = (dy u (σ + s (1 - σ)), dy s) (M, 2f) bf16, pairs interleaved; may overwrite z
//   y   = s u                          (M, f) bf16, for the wgrad, where the forward pass did not keep it
//   dot = Σ g dg + u du over the tile  (tiles, M) fp32, for the norm's backward pass
#include <type_traits>

#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/ops/linear_swiglu/op.h"

namespace coda::hopper {

namespace {

/// Panels of a slot: z, overwritten by dz; y where it is recomputed.
template <bool kMakesY>
using SwigluSlot = std::conditional_t<kMakesY, Slot<32, Panel{128, 2, 1}, Panel{64}>, Slot<32, Panel{128, 2, 1}>>;

struct NoStore {
    __device__ void put(const Here&, float2) {}
};

template <bool kMakesY>
struct SwigluBackward : EpilogueProgram {
    using Slot = SwigluSlot<kMakesY>;
    struct Arguments {
        const float* rstd;  // (M), may be null
        float* dot;         // (tiles, M)
    };

    static constexpr bool kHalves = false;            // halved tiles would spill a register
    static constexpr int kFetched = kMakesY ? 0 : 2;  // with tiles of 192 rows, four pairs would spill too

    const Arguments& arguments;
    ColumnVector<> rstd;
    WideTileLoad<Slot, 0> z;
    WideTileStore<Slot, 0> dz;
    std::conditional_t<kMakesY, TileStore<Slot, kMakesY ? 1 : 0>, NoStore> y;
    RowSum dot;

    struct Gradient {
        float2 dz;
        float y;
    };

    __device__ explicit SwigluBackward(const Arguments& given) : arguments(given) {}

    __device__ Gradient gradient(float dy, float2 gate_up, const Here& at) {
        const auto [gate, up] = gate_up;
        const float sigma = sigmoid_approximate(gate);
        const float silu = gate * sigma;
        const float y = silu * up;
        const float slope = fmaf(sigma, up - y, y);
        dot.add_product(at, dy, fmaf(gate, slope, y));
        return {{dy * slope, dy * silu}, y};
    }
    __device__ void load_rows(const Rows& rows) { rstd.load_rows(rows, arguments.rstd, 1); }
    __device__ void begin_rows(const Rows&) {
        rstd.begin_rows();
        dot.clear();
    }
    __device__ void fetch(const Here& at) { z.fetch(at); }
    __device__ void visit(float2 acc, const Here& at) {
        const TwoPairs saved = z[at];
        const Gradient first = gradient(acc.x * rstd[at], saved.first, at);
        const Gradient second = gradient(acc.y * rstd[at], saved.second, at);
        dz.put(at, first.dz, second.dz);
        y.put(at, {first.y, second.y});
    }
    __device__ void end_rows(const Rows& rows) { dot.write(rows, arguments.dot, rows.tile_n()); }
};

/// Calls fn with the kernels of the variant that stores y, or of the one that does not.
template <class Fn>
auto with_kernels(const LinearSwigluBackward& op, const Fn& fn) {
    if (op.y) return fn(Kernels<SwigluBackward<true>, Major::k, Major::mn, tiles::SwigluBackwardAndY>{});
    return fn(Kernels<SwigluBackward<false>, Major::k, Major::mn, tiles::SwigluBackward>{});
}

Problem problem_of(const LinearSwigluBackward& op) {
    Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    problem.partial_columns = op.tile;
    require_operand(op.name, "z", op.z, problem.m, 2 * problem.n, DType::bf16);
    require_operand(op.name, "dz", op.dz, problem.m, 2 * problem.n, DType::bf16);
    if (op.y) require_operand(op.name, "y", op.y, problem.m, problem.n, DType::bf16);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "dot", op.dot, ceil_div(problem.n, op.tile), problem.m, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearSwigluBackward& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearSwigluBackward& op, const Plan& plan, const Memory& memory) {
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        TileOperands<typename Kernels::Program> operands{{op.z}, {op.dz}};
        if (op.y) operands.store[Kernels::Program::Slot::kPanels - 1] = op.y;
        return kernels.bind(problem_of(op), plan, memory, operands,
                            {memory.at<float>(op.rstd), memory.at<float>(op.dot)});
    });
}

}  // namespace coda::hopper
