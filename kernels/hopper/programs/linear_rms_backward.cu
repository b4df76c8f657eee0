// linear_rms_backward - dgrad of a projection and the backward pass of the norm before it (K9)
//
//   dn     = alpha acc, acc = a w      (M, N), w (K, N); x̂ = x rstd; c = alpha dot / N
//   dx     (+)= rstd (dn gamma - x̂ c)  (M, N) bf16    gradient of the residual stream
//   n      = x̂ gamma                   (M, N) bf16    normalised activation, which the weight gradient needs next
//   dgamma = Σ dn x̂ over 64 rows       (M / 64, N) fp32
//
// K is summed from its end. The accumulators of tensor cores cut what they add at their own last bit, so small terms
// are to come first; where K is a vocabulary, its rare tokens, the small terms, have the high numbers.
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"

namespace coda::hopper {

namespace {

struct RmsBackward : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}, Panel{64}>;  // dx in place; x, overwritten by n
    using Sums = ColumnSum<Slot>;
    struct Arguments {
        const float* rstd;   // (M)
        const float* dot;    // (M)
        const float* gamma;  // (N)
        const float* alpha;  // may be null
        float* dgamma;       // (M / 64, N)
        float per_column;    // 1 / N
        bool accumulate;     // dx is loaded
    };
    static constexpr int kScratchBytes = Sums::kScratchBytes;
    static constexpr bool kLastFirst = true;

    const Arguments& arguments;
    float alpha;
    ColumnVector rstd;
    float scale[2];  // alpha rstd of the row
    float back[2];   // -rstd c
    RowVector<Slot> gamma;
    TileLoad<Slot, 0> dx_before;
    TileLoad<Slot, 1> x;
    TileStore<Slot, 0> dx;
    TileStore<Slot, 1> n;
    Sums dgamma;

    __device__ explicit RmsBackward(const Arguments& given)
        : arguments(given), alpha(given.alpha != nullptr ? __ldg(given.alpha) : 1.0f) {}

    struct Gradient {
        float dx, normalised;
        float dn;  // times rstd
    };

    /// math/rms.h's, with the row's factors taken together: what is left is six products, half of them with a sum.
    __device__ Gradient gradient(float acc, float stream, float weight, float before, int half) const {
        const float xhat = stream * rstd.value[half];
        const float dn = acc * scale[half];
        return {fmaf(dn, weight, fmaf(xhat, back[half], before)), xhat * weight, dn};
    }
    __device__ void begin_rows(const Rows& rows) {
        rstd.begin_rows(rows, arguments.rstd, 0);
        ColumnVector dot;
        dot.begin_rows(rows, arguments.dot, 0);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            scale[half] = alpha * rstd.value[half];
            back[half] = -arguments.per_column * scale[half] * dot.value[half];
        }
    }
    __device__ void begin_slot(const Rows& rows, int column) {
        gamma.begin_slot(rows, column, arguments.gamma);
        dgamma.begin_slot();
    }
    __device__ void fetch(const Here& at) {
        dx_before.fetch_if(arguments.accumulate, at);
        x.fetch(at);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 stream = x[at], weight = gamma[at], before = dx_before[at];
        const Gradient first = gradient(acc.x, stream.x, weight.x, before.x, at.half);
        const Gradient second = gradient(acc.y, stream.y, weight.y, before.y, at.half);
        dx.put(at, {first.dx, second.dx});
        n.put(at, {first.normalised, second.normalised});
        dgamma.add_product(at, {first.dn, second.dn}, stream);
    }
    __device__ void end_slot(const Rows& rows, int column) { dgamma.end_slot(rows, column); }
    __device__ void end_rows(const Rows& rows) { dgamma.end_rows(rows, arguments.dgamma); }
};

}  // namespace

Launch prepare_op(const LinearRmsBackward& op, const Memory& memory, const GemmChoice& choice) {
    const Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::in_out);
    require(op.tile == kPanelRows, op.name, ": the op's partials have ", op.tile, " rows, the kernels were built for ",
            kPanelRows, " (kernels/tiling.cpp)");
    require_shape(problem, "x", op.x, problem.m, problem.n, DType::bf16);
    require_shape(problem, "dx", op.dx, problem.m, problem.n, DType::bf16);
    require_shape(problem, "n", op.n, problem.m, problem.n, DType::bf16);
    require_shape(problem, "rstd", op.rstd, 1, problem.m, DType::f32);
    require_shape(problem, "dot", op.dot, 1, problem.m, DType::f32);
    require_shape(problem, "gamma", op.gamma, 1, problem.n, DType::f32);
    require_shape(problem, "dgamma", op.dgamma, ceil_div(problem.m, op.tile), problem.n, DType::f32);
    const bool accumulate = op.dx.beta == Beta::accumulate;
    const RmsBackward::Arguments arguments{memory.at<float>(op.rstd),
                                           memory.at<float>(op.dot),
                                           memory.at<float>(op.gamma),
                                           memory.at<float>(op.alpha),
                                           memory.at<float>(op.dgamma),
                                           1.0f / static_cast<float>(problem.n),
                                           accumulate};
    return launch_quickest<RmsBackward, Major::k, Major::mn, tiles::RmsBackward, tiles::RmsBackwardWide>(
        problem, memory, {{accumulate ? View(op.dx) : View{}, op.x}, {op.dx, op.n}}, arguments, choice);
}

}  // namespace coda::hopper
