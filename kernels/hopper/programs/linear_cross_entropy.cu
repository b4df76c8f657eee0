// linear_cross_entropy - logits and the partial log-sum-exp of their rows (K3), after the norm's 1/rms (K8)
//
//   logits       = acc rstd            (M, V) bf16, 0 in columns >= vocab; rstd 1 where absent
//   lse          = (m, Σ exp(logit - m)), m the largest logit of the tile's columns < vocab     (tiles, M) pairs
//   target_logit = logit of the target (M) fp32, before rounding; not written for ignored rows
//
// The sum is over logits as they are stored: then the gradient made from them and from lse, exp(logit - lse) -
// [target], sums to 0 over a row, as it must. With a sum over unrounded logits it does not, by the same amount in every
// row where the model says the same, and training drifts. The whole row of a tile is in registers, so the maximum is
// taken first and every exponential is computed once.
#include "kernels/hopper/epilogue/pair_math.cuh"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"

namespace coda::hopper {

namespace {

struct CrossEntropy : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    struct Arguments {
        const float* rstd;            // (M), may be null
        const std::int32_t* targets;  // (M)
        float2* lse;                  // (tiles, M)
        float* target_logit;          // (M)
        int vocab;
    };
    static constexpr bool kObserves = true;
    static constexpr float kLowest = -1e30f;  // finite: the difference of two of them is 0

    const Arguments& arguments;
    ColumnVector rstd;
    int target[2];
    float maximum[2];
    RowSum sum;
    bool ragged;  // the tile has columns beyond the vocabulary
    TileStore<Slot, 0> logits;

    __device__ explicit CrossEntropy(const Arguments& given) : arguments(given) {}

    __device__ void begin_rows(const Rows& rows) {
        rstd.begin_rows(rows, arguments.rstd, arguments.rstd == nullptr ? 1.0f : 0.0f);
        ragged = rows.column + rows.width > arguments.vocab;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            target[half] = rows.valid(half) ? __ldg(arguments.targets + rows.row(half)) : -1;
            maximum[half] = kLowest;
        }
        sum.clear();
    }
    __device__ void observe(float2 acc, int column, int half) {
        if (ragged) {
            acc.x = column < arguments.vocab ? acc.x : kLowest;
            acc.y = column + 1 < arguments.vocab ? acc.y : kLowest;
        }
        maximum[half] = fmaxf(maximum[half], fmaxf(acc.x, acc.y));
    }
    __device__ void end_observe(const Rows&) {
#pragma unroll
        for (int half = 0; half < 2; ++half) maximum[half] = quad_max(maximum[half]) * rstd.value[half];
    }
    __device__ void visit(float2 acc, const Here& at) {
        float2 logit = {acc.x * rstd[at], acc.y * rstd[at]};
        const bool first = at.column < arguments.vocab, second = at.column + 1 < arguments.vocab;
        if (ragged) logit = {first ? logit.x : 0, second ? logit.y : 0};
        const unsigned ahead = static_cast<unsigned>(target[at.half] - at.column);
        if (ahead < 2) arguments.target_logit[at.row] = ahead == 0 ? logit.x : logit.y;
        const float2 stored = logits.put(at, logit);
        float2 exponential = {exp2_approximate(kLog2e * (stored.x - maximum[at.half])),
                              exp2_approximate(kLog2e * (stored.y - maximum[at.half]))};
        if (ragged) exponential = {first ? exponential.x : 0, second ? exponential.y : 0};
        sum.add(at, exponential.x + exponential.y);
    }
    __device__ void end_rows(const Rows& rows) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float total = quad_sum(sum.sum[half]);
            if (rows.thread.lane % 4 == 0 && rows.valid(half) && rows.column < rows.columns)
                arguments.lse[static_cast<std::int64_t>(rows.tile_n()) * rows.count + rows.row(half)] = {maximum[half],
                                                                                                         total};
        }
    }
};

template <class Op>
Launch launch(const Op& op, const Memory& memory, const View& rstd, const GemmChoice& choice) {
    Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    problem.partial_columns = op.tile;
    if (op.logits) require_shape(problem, "logits", op.logits, problem.m, problem.n, DType::bf16);
    require_shape(problem, "targets", op.targets, 1, problem.m, DType::i32);
    require_shape(problem, "target_logit", op.target_logit, 1, problem.m, DType::f32);
    require_shape(problem, "lse", op.lse, ceil_div(problem.n, op.tile), 2 * problem.m, DType::f32);
    if (rstd) require_shape(problem, "rstd", rstd, 1, problem.m, DType::f32);
    require(op.vocab > 0 && op.vocab <= problem.n, op.name, ": vocab ", op.vocab, " is not in 1..", problem.n);
    const CrossEntropy::Arguments arguments{memory.at<float>(rstd), memory.at<std::int32_t>(op.targets),
                                            reinterpret_cast<float2*>(memory.at<float>(op.lse)),
                                            memory.at<float>(op.target_logit), static_cast<int>(op.vocab)};
    return launch_quickest<CrossEntropy, Major::k, Major::k, tiles::Square>(problem, memory, {{}, {op.logits}},
                                                                            arguments, choice);
}

}  // namespace

Launch prepare_op(const LinearCrossEntropy& op, const Memory& memory, const GemmChoice& choice) {
    return launch(op, memory, View{}, choice);
}
Launch prepare_op(const LinearRstdCrossEntropy& op, const Memory& memory, const GemmChoice& choice) {
    return launch(op, memory, op.rstd, choice);
}

}  // namespace coda::hopper
