// linear_cross_entropy - exponentials of the logits and the sums of their rows (K3), after the norm's 1/rms (K8)
//
//   d            = acc rstd - t, t the target's logit (TargetLogit)      rstd, t (M) fp32; rstd 1 where absent
//   exponentials = e = 2^(min(log2(e) d, kLimit) - kShift)               (M, V) bf16, 0 in columns >= vocab
//   sums         = (Σ e, Σ e d) over the tile's columns < vocab          (tiles, M) pairs
//
// The sums are taken of e as stored. Then the gradient e / Σ e - [target] sums to 0 over a row, as it must. With sums
// of unrounded e it does not: rows with the same prediction are off by the same amount, and training drifts. t takes
// the place of the row's maximum (kernels/math/cross_entropy.h), so one pass over the logits is enough.
#include <numbers>

#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::hopper {

namespace {

struct CrossEntropyArguments {
    const float* rstd;          // (M), may be null
    const float* target_logit;  // (M)
    float2* sums;               // (tiles, M)
    int vocab;
};

/// kRagged: tiles have columns beyond the vocabulary, inside or outside the matrix. Most vocabularies are multiples of
/// the tile and not padded, which saves one select per element.
template <bool kRagged>
struct CrossEntropy : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    using Arguments = CrossEntropyArguments;
    static constexpr float kLimit = cross_entropy::kLimit, kShift = cross_entropy::kShift;
    static constexpr float kLowest = -1e30f;  // 2^kLowest is 0, and so is its product with a finite distance

    const Arguments& arguments;
    ColumnVector<> rstd, target_logit;
    float factor[2];  // rstd log2(e)
    float origin[2];  // t log2(e)
    RowSum sum;       // Σ e
    RowSum weighted;  // Σ e d log2(e)
    TileStore<Slot, 0> exponentials;

    __device__ explicit CrossEntropy(const Arguments& given) : arguments(given) {}

    __device__ void load_rows(const Rows& rows) {
        rstd.load_rows(rows, arguments.rstd, arguments.rstd == nullptr ? 1.0f : 0.0f);
        target_logit.load_rows(rows, arguments.target_logit, 0);
    }
    __device__ void begin_rows(const Rows&) {
        rstd.begin_rows();
        target_logit.begin_rows();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            factor[half] = rstd.value[half] * kLog2e;
            origin[half] = target_logit.value[half] * kLog2e;
        }
        sum.clear();
        weighted.clear();
    }

    /// d log2(e) of a logit.
    __device__ float distance(float acc, int column, int half) const {
        if (kRagged && column >= arguments.vocab) return kLowest;
        return fmaf(acc, factor[half], -origin[half]);
    }
    static __device__ float exponential(float distance) {
        return exp2_approximate(minimum_or_nan(distance, kLimit) - kShift);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 apart = {distance(acc.x, at.column, at.half), distance(acc.y, at.column + 1, at.half)};
        const float2 stored = exponentials.put(at, {exponential(apart.x), exponential(apart.y)});
        sum.add(at, stored.x + stored.y);
        weighted.add_product(at, stored.x, apart.x);
        weighted.add_product(at, stored.y, apart.y);
    }
    __device__ void end_rows(const Rows& rows) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2 pair = {quad_sum(sum.sum[half]), std::numbers::ln2_v<float> * quad_sum(weighted.sum[half])};
            if (rows.thread.lane % 4 == 0 && rows.valid(half) && rows.column < rows.columns)
                arguments.sums[static_cast<std::int64_t>(rows.tile_n()) * rows.count + rows.row(half)] = pair;
        }
    }
};

/// Calls fn with the kernels of the variant that the vocabulary needs.
template <class Fn>
auto with_kernels(const LinearCrossEntropy& op, const Fn& fn) {
    if (op.vocab == op.w.rows && op.vocab % op.tile == 0)
        return fn(Kernels<CrossEntropy<false>, Major::k, Major::k, tiles::CrossEntropyTall, tiles::CrossEntropy>{});
    return fn(Kernels<CrossEntropy<true>, Major::k, Major::k, tiles::CrossEntropy>{});
}

CrossEntropyArguments arguments_of(const LinearCrossEntropy& op, const Memory& memory) {
    return {memory.at<float>(op.rstd), memory.at<float>(op.target_logit),
            reinterpret_cast<float2*>(memory.at<float>(op.sums)), static_cast<int>(op.vocab)};
}

Problem problem_of(const LinearCrossEntropy& op) {
    Problem problem = linear_problem(op.name, op.a, op.w, WeightLayout::out_in);
    problem.partial_columns = op.tile;
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    if (op.exponentials) require_operand(op.name, "exponentials", op.exponentials, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "target_logit", op.target_logit, 1, problem.m, DType::f32);
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require_operand(op.name, "sums", op.sums, ceil_div(problem.n, op.tile), 2 * problem.m, DType::f32);
    require(op.vocab > 0 && op.vocab <= problem.n, op.name, ": vocab ", op.vocab, " is not in 1..", problem.n);
    return problem;
}

}  // namespace

template <>
Plan choose(const LinearCrossEntropy& op, const Request& request) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem, request); });
}

template <>
Launch bind(const LinearCrossEntropy& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) {
        return kernels.bind(problem, plan, memory, {{}, {op.exponentials}}, arguments_of(op, memory));
    });
}

}  // namespace coda::hopper
