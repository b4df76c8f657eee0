// linear_rms_backward - dgrad of a projection and the backward pass of the norm before it (K9)
//
//   t      = of_acc acc, acc = a w     (M, N), w (K, N); of_acc, of_x, of_n: factors per row (math/rms.h)
//   dx     (+)= t - of_x x             (M, N) bf16    gradient of the residual stream
//   n      = of_n x                    (M, N) bf16    normalised activation, for the LM head's wgrad
//   dgamma = Σ t x over 64 rows        (M / 64, N) fp32    times the norm's weight, which w carries in its columns
//
// K is summed from its end. Tensor cores cut each term at the accumulator's last bit, so small terms must come first.
// Where K is a vocabulary, the small terms are those of rare tokens, which have the high numbers.
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/math/rms.h"
#include "kernels/ops/linear_rms_backward/op.h"

namespace coda::hopper {

namespace {

template <bool kMakesN>
struct RmsBackward : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{64}, Panel{64}>;  // dx in place; x, overwritten by n
    using Sums = ColumnSum<Slot>;
    struct Arguments {
        const float* rstd;   // (M)
        const float* dot;    // (M)
        const float* alpha;  // may be null
        const float* scale;  // (M), may be null
        float* dgamma;       // (M / 64, N)
        float per_column;    // 1 / N
        bool accumulate;     // dx is loaded
    };
    static constexpr int kScratchBytes = Sums::kScratchBytes;
    static constexpr bool kLastFirst = true;

    const Arguments& arguments;
    float alpha;
    RmsBackwardRow<float> row[2];
    TileLoad<Slot, 0> dx_before;
    TileLoad<Slot, 1> x;
    TileStore<Slot, 0> dx;
    TileStore<Slot, 1> n;
    Sums dgamma;

    __device__ explicit RmsBackward(const Arguments& given)
        : arguments(given), alpha(given.alpha != nullptr ? __ldg(given.alpha) : 1.0f) {}

    __device__ void begin_rows(const Rows& rows) {
        ColumnVector rstd, dot, scale;
        rstd.begin_rows(rows, arguments.rstd, 0);
        dot.begin_rows(rows, arguments.dot, 0);
        scale.begin_rows(rows, arguments.scale, 1);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float mean = dot.value[half] * arguments.per_column;
            row[half] = arguments.scale != nullptr ? rms_backward_row(alpha, rstd.value[half], mean, scale.value[half])
                                                   : rms_backward_row(alpha, rstd.value[half], mean);
        }
    }
    __device__ void begin_slot(const Rows&, int) { dgamma.begin_slot(); }
    __device__ void fetch(const Here& at) {
        dx_before.fetch_if(arguments.accumulate, at);
        x.fetch(at);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const auto [of_acc, of_x, of_n] = row[at.half];
        const float2 stream = x[at], before = dx_before[at];
        const float2 t = {of_acc * acc.x, of_acc * acc.y};
        dx.put(at, {t.x + fmaf(-of_x, stream.x, before.x), t.y + fmaf(-of_x, stream.y, before.y)});
        if constexpr (kMakesN) n.put(at, {of_n * stream.x, of_n * stream.y});
        dgamma.add_product(at, t, stream);
    }
    __device__ void end_slot(const Rows& rows, int column) { dgamma.end_slot(rows, column); }
    __device__ void end_rows(const Rows& rows) { dgamma.end_rows(rows, arguments.dgamma); }
};

template <bool kMakesN>
using RmsBackwardKernels =
    Kernels<RmsBackward<kMakesN>, Major::k, Major::mn, tiles::RmsBackward, tiles::RmsBackwardWide>;

/// Calls fn with the kernels of the variant that stores n, or of the one that does not.
template <class Fn>
auto with_kernels(const LinearRmsBackward& op, const Fn& fn) {
    return op.n ? fn(RmsBackwardKernels<true>{}) : fn(RmsBackwardKernels<false>{});
}

Problem problem_of(const LinearRmsBackward& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    require(op.tile == kPanelRows, op.name, ": the op's partials have ", op.tile, " rows, the kernels were built for ",
            kPanelRows, " (kTileRows)");
    require_operand(op.name, "x", op.x, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "dx", op.dx, problem.m, problem.n, DType::bf16);
    if (op.n) require_operand(op.name, "n", op.n, problem.m, problem.n, DType::bf16);
    if (op.scale) require_operand(op.name, "scale", op.scale, 1, problem.m, DType::f32);
    require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    require_operand(op.name, "dot", op.dot, 1, problem.m, DType::f32);
    require_operand(op.name, "dgamma", op.dgamma, ceil_div(problem.m, op.tile), problem.n, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearRmsBackward& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const LinearRmsBackward& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    const bool accumulate = op.dx.beta == Beta::accumulate;
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        const typename Kernels::Program::Arguments arguments{memory.at<float>(op.rstd),
                                                             memory.at<float>(op.dot),
                                                             memory.at<float>(op.alpha),
                                                             memory.at<float>(op.scale),
                                                             memory.at<float>(op.dgamma),
                                                             1.0f / static_cast<float>(problem.n),
                                                             accumulate};
        return kernels.bind(problem, plan, memory, {{accumulate ? View(op.dx) : View{}, op.x}, {op.dx, op.n}},
                            arguments);
    });
}

}  // namespace coda::hopper
