// linear_gelu_backward - dgrad of the down projection and the backward pass of GELU
//
//   d     = acc gelu'(z), acc = a w       (M, f), w (K, f)
//   dz    = rstd d                        (M, f) bf16; may overwrite z; rstd 1 where absent
//   y     = gelu(z)                       (M, f) bf16, for the wgrad, where the forward pass did not keep it
//   dot   = Σ (z - bias) dz over the tile (tiles, M) fp32, for the norm's backward pass; bias 0 where absent
//   dbias = Σ d over 64 rows              (M / 64, f) fp32, the bias' gradient
//
// Rows beyond the matrix have acc 0, so that they add nothing to dbias.
#include <type_traits>

#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_gelu/gelu.cuh"
#include "kernels/ops/linear_gelu/op.h"

namespace coda::hopper {

namespace {

/// Panels of a slot: z, which dz overwrites, and y if the op makes it again.
template <bool kMakesY>
using GeluSlot = std::conditional_t<kMakesY, Slot<32, Panel{64}, Panel{64}>, Slot<32, Panel{64}>>;

/// Read in place of a bias.
__device__ const float2 no_bias = {0, 0};

struct NoStore {
    __device__ void put(const Here&, float2) {}
};

template <Gelu kind, bool kMakesY>
struct GeluBackward : EpilogueProgram {
    using Slot = GeluSlot<kMakesY>;
    using Sums = ColumnSum<>;
    struct Arguments {
        const float* rstd;  // (M), may be null
        const float* bias;  // (f), or no_bias
        int last;           // the first column of its last pair
        float* dot;         // (tiles, M)
        float* dbias;       // (M / 64, f)
    };
    static constexpr int kScratchBytes = Sums::kScratchBytes;
    static constexpr bool kHalves = false;  // halved tiles would spill registers
    static constexpr int kFetched = 4;      // and so would all eight pairs of z

    const Arguments& arguments;
    ColumnVector<> rstd;
    TileLoad<Slot, 0> z;
    TileStore<Slot, 0> dz;
    std::conditional_t<kMakesY, TileStore<Slot, kMakesY ? 1 : 0>, NoStore> y;
    RowSum dot;
    Sums dbias;

    __device__ explicit GeluBackward(const Arguments& given) : arguments(given) {}
    __device__ void load_rows(const Rows& rows) { rstd.load_rows(rows, arguments.rstd, 1); }
    __device__ void begin_rows(const Rows&) {
        rstd.begin_rows();
        dot.clear();
    }
    __device__ void fetch(const Here& at) { z.fetch(at); }
    /// NOTE: the bias is read here, from L1, as a RowVector would spill; and so would another order of the results.
    __device__ void visit(float2 acc, const Here& at) {
        const float2 saved = z[at];
        const float2 bias = __ldg(reinterpret_cast<const float2*>(arguments.bias + min(at.column, arguments.last)));
        const GeluValue<float> left = gelu_approximate<kind>(saved.x), right = gelu_approximate<kind>(saved.y);
        const float2 gradient = {acc.x * left.slope, acc.y * right.slope};
        const float2 scaled = {rstd[at] * gradient.x, rstd[at] * gradient.y};
        y.put(at, {left.y, right.y});
        dbias.add(at, gradient);
        dot.add_product(at, saved.x - bias.x, scaled.x);
        dot.add_product(at, saved.y - bias.y, scaled.y);
        dz.put(at, scaled);
    }
    template <int kBlocks>
    __device__ void end_blocks(const Rows& rows, int column, int block) {
        dbias.end_blocks<kBlocks>(rows, column, block);
    }
    __device__ void end_rows(const Rows& rows) {
        dot.write(rows, arguments.dot, rows.tile_n());
        dbias.end_rows(rows, arguments.dbias);
    }
};

/// Calls fn with the kernels of the op's kind that store y, or of those that do not.
template <class Fn>
auto with_kernels(const LinearGeluBackward& op, const Fn& fn) {
    return with_gelu(op.kind, [&]<Gelu kind>() {
        if (op.y) return fn(Kernels<GeluBackward<kind, true>, Major::k, Major::mn, tiles::RmsBackward>{});
        return fn(Kernels<GeluBackward<kind, false>, Major::k, Major::mn, tiles::RmsBackward>{});
    });
}

Problem problem_of(const LinearGeluBackward& op) {
    Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    problem.partial_columns = op.tile;
    require_operand(op.name, "z", op.z, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "dz", op.dz, problem.m, problem.n, DType::bf16);
    if (op.y) require_operand(op.name, "y", op.y, problem.m, problem.n, DType::bf16);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    if (op.bias) require_operand(op.name, "bias", op.bias, 1, problem.n, DType::f32);
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "dot", op.dot, ceil_div(problem.n, op.tile), problem.m, DType::f32);
    require(op.row_tile == kPanelRows, op.name, ": the op's partials have ", op.row_tile,
            " rows, the kernels were built for ", kPanelRows, " (kTileRows)");
    require_operand(op.name, "dbias", op.dbias, ceil_div(problem.m, op.row_tile), problem.n, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearGeluBackward& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearGeluBackward& op, const Plan& plan, const Memory& memory) {
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        void* zeros = nullptr;
        CUDA_CHECK(cudaGetSymbolAddress(&zeros, no_bias));
        TileOperands<typename Kernels::Program> operands{{op.z}, {op.dz}};
        if (op.y) operands.store[Kernels::Program::Slot::kPanels - 1] = op.y;
        return kernels.bind(
            problem_of(op), plan, memory, operands,
            {memory.at<float>(op.rstd), op.bias ? memory.at<float>(op.bias) : static_cast<const float*>(zeros),
             op.bias ? static_cast<int>(op.bias.cols) - 2 : 0, memory.at<float>(op.dot), memory.at<float>(op.dbias)});
    });
}

}  // namespace coda::hopper
