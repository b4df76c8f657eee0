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

struct CrossEntropyArguments {
    const float* rstd;            // (M), may be null
    const std::int32_t* targets;  // (M)
    float2* lse;                  // (tiles, M)
    float* target_logit;          // (M)
    int vocab;
};

/// kRagged: the last tile has columns beyond the vocabulary. Most vocabularies are multiples of the tile, and are
/// spared two selects an element.
template <bool kRagged>
struct CrossEntropy : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    using Arguments = CrossEntropyArguments;
    static constexpr float kLowest = -1e30f;  // finite: the difference of two of them is 0

    const Arguments& arguments;
    ColumnVector rstd;
    float maximum[2];
    RowSum sum;
    TileStore<Slot, 0> logits;

    __device__ explicit CrossEntropy(const Arguments& given) : arguments(given) {}

    __device__ bool in_vocabulary(int column) const { return !kRagged || column < arguments.vocab; }

    __device__ void begin_rows(const Rows& rows) {
        rstd.begin_rows(rows, arguments.rstd, arguments.rstd == nullptr ? 1.0f : 0.0f);
        sum.clear();
    }

    template <int kCount>
    __device__ void observe(const float (&acc)[kCount], const Rows& rows) {
        const int column = rows.column + Fragment::column(rows.thread.lane, 0);
        maximum[0] = maximum[1] = kLowest;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
            const float first = in_vocabulary(column + i / 2 * 8) ? acc[2 * i] : kLowest;
            const float second = in_vocabulary(column + i / 2 * 8 + 1) ? acc[2 * i + 1] : kLowest;
            maximum[i % 2] = fmaxf(maximum[i % 2], fmaxf(first, second));
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) maximum[half] = quad_max(maximum[half]) * rstd.value[half];
        write_targets(acc, rows, column);
    }

    __device__ void visit(float2 acc, const Here& at) {
        const bool first = in_vocabulary(at.column), second = in_vocabulary(at.column + 1);
        const float2 logit = {first ? acc.x * rstd[at] : 0, second ? acc.y * rstd[at] : 0};
        const float2 stored = logits.put(at, logit);
        const float shift = kLog2e * maximum[at.half];
        const float2 exponential = {exp2_approximate(fmaf(kLog2e, stored.x, -shift)),
                                    exp2_approximate(fmaf(kLog2e, stored.y, -shift))};
        sum.add(at, (first ? exponential.x : 0) + (second ? exponential.y : 0));
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

  private:
    /// NOTE: one row in a thousand has its target in this tile, so the search is apart from the visits.
    template <int kCount>
    __device__ void write_targets(const float (&acc)[kCount], const Rows& rows, int column) const {
        int ahead[2];  // of the thread's first column
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int target = rows.valid(half) ? __ldg(arguments.targets + rows.row(half)) : -1;
            ahead[half] = target - column;
        }
        const auto inside = [&](int half) { return static_cast<unsigned>(ahead[half]) < 2 * kCount; };
        if (!inside(0) && !inside(1)) return;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
            const auto distance = static_cast<unsigned>(ahead[i % 2] - i / 2 * 8);
            if (distance < 2)
                arguments.target_logit[rows.row(i % 2)] =
                    (distance == 0 ? acc[2 * i] : acc[2 * i + 1]) * rstd.value[i % 2];
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
    const CrossEntropyArguments arguments{memory.at<float>(rstd), memory.at<std::int32_t>(op.targets),
                                          reinterpret_cast<float2*>(memory.at<float>(op.lse)),
                                          memory.at<float>(op.target_logit), static_cast<int>(op.vocab)};
    const auto launch = [&]<class Program>() {
        return launch_quickest<Program, Major::k, Major::k, tiles::CrossEntropy>(problem, memory, {{}, {op.logits}},
                                                                                 arguments, choice);
    };
    return op.vocab % op.tile == 0 ? launch.template operator()<CrossEntropy<false>>()
                                   : launch.template operator()<CrossEntropy<true>>();
}

}  // namespace

Launch prepare_op(const LinearCrossEntropy& op, const Memory& memory, const GemmChoice& choice) {
    return launch(op, memory, View{}, choice);
}
Launch prepare_op(const LinearRstdCrossEntropy& op, const Memory& memory, const GemmChoice& choice) {
    return launch(op, memory, op.rstd, choice);
}

}  // namespace coda::hopper
