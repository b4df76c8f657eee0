// The epilogue program of LinearRmsBackward, on accumulators of bf16 or FP8 operands: hopper.cu, hopper_f8.cu.
#pragma once

#include <type_traits>

#include "kernels/core/integers.h"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/math/rms.h"
#include "kernels/ops/linear_rms_backward/op.h"

namespace coda::hopper {

/// dx in place; x, overwritten by n.
using RmsBackwardSlot = Slot<32, Panel{64}, Panel{64}>;

struct RmsBackwardArguments {
    const float* rstd;   // (M)
    const float* dot;    // (M)
    const float* alpha;  // may be null
    const float* scale;  // (M), may be null, and is where no n is made
    float* dgamma;       // (M / 64, N)
    float per_column;    // 1 / N
    bool accumulate;     // dx is loaded
};
struct RmsBackwardArgumentsAndSum : RmsBackwardArguments {
    float* dx_sum;  // (M / 64, N)
};

/// A column sum that a program does not make.
struct NoColumnSum {
    static constexpr int kScratchBytes = 0;
    __device__ void add(const Here&, float2) {}
    __device__ void add_product(const Here&, float2, float2) {}
    template <int kBlocks>
    __device__ void end_blocks(const Rows&, int, int) {}
    __device__ void end_rows(const Rows&, float*) {}
};

/// kNormed: x was normalised, so that there are rstd, dot and dgamma.
template <bool kMakesN, class Slot_ = RmsBackwardSlot, bool kSumsDx = false, bool kNormed = true>
struct RmsBackward : EpilogueProgram {
    using Slot = Slot_;
    using Sums = std::conditional_t<kNormed, ColumnSum<>, NoColumnSum>;
    using SumsOfDx = std::conditional_t<kSumsDx, ColumnSum<1>, NoColumnSum>;
    using Arguments = std::conditional_t<kSumsDx, RmsBackwardArgumentsAndSum, RmsBackwardArguments>;
    static constexpr int kScratchBytes = Sums::kScratchBytes + SumsOfDx::kScratchBytes;
    static constexpr bool kLastFirst = true, kSums = kSumsDx;

    const Arguments& arguments;
    ColumnVector<> rstd, dot, scale;
    RmsBackwardRow<float> row[2];
    TileLoad<Slot, 0> dx_before;
    TileLoad<Slot, 1> x;
    TileStore<Slot, 0> dx;
    TileStore<Slot, 1> n;
    Sums dgamma;
    SumsOfDx dx_sum;

    __device__ explicit RmsBackward(const Arguments& given) : arguments(given) {}

    __device__ void load_rows(const Rows& rows) {
        rstd.load_rows(rows, arguments.rstd, kNormed ? 0 : 1);
        dot.load_rows(rows, arguments.dot, 0);
        if constexpr (kMakesN) scale.load_rows(rows, arguments.scale, 1);
    }
    __device__ void begin_rows(const Rows&) {
        rstd.begin_rows();
        dot.begin_rows();
        if constexpr (kMakesN) scale.begin_rows();
        const float alpha = arguments.alpha != nullptr ? __ldg(arguments.alpha) : 1.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float mean = dot.value[half] * arguments.per_column;
            row[half] = kMakesN && arguments.scale != nullptr
                            ? rms_backward_row(alpha, rstd.value[half], mean, scale.value[half])
                            : rms_backward_row(alpha, rstd.value[half], mean);
        }
    }
    __device__ void fetch(const Here& at) {
        dx_before.fetch_if(arguments.accumulate, at);
        x.fetch(at);
    }
    /// Returns dx as stored.
    __device__ float2 visit(float2 acc, const Here& at) {
        const auto [of_acc, of_x, of_n] = row[at.half];
        const float2 stream = x[at], before = dx_before[at];
        const float2 t = {of_acc * acc.x, of_acc * acc.y};
        const float2 sum = {t.x + fmaf(-of_x, stream.x, before.x), t.y + fmaf(-of_x, stream.y, before.y)};
        const float2 stored = dx.put(at, sum);
        if constexpr (kMakesN) n.put(at, {of_n * stream.x, of_n * stream.y});
        dgamma.add_product(at, t, stream);
        dx_sum.add(at, sum);
        return stored;
    }
    template <int kBlocks>
    __device__ void end_blocks(const Rows& rows, int column, int block) {
        dgamma.template end_blocks<kBlocks>(rows, column, block);
        dx_sum.template end_blocks<kBlocks>(rows, column, block);
    }
    __device__ void end_rows(const Rows& rows) {
        dgamma.end_rows(rows, arguments.dgamma);
        if constexpr (kSumsDx) dx_sum.end_rows(rows, arguments.dx_sum);
    }
};

inline RmsBackwardArguments arguments_of(const LinearRmsBackward& op, const Problem& problem, const Memory& memory) {
    return {memory.at<float>(op.rstd),     memory.at<float>(op.dot),    memory.at<float>(op.alpha),
            memory.at<float>(op.scale),    memory.at<float>(op.dgamma), 1.0f / static_cast<float>(problem.n),
            op.dx.beta == Beta::accumulate};
}

/// Throws Error where an operand of the epilogue does not fit the GEMM. Operands that only one kind of factors has are
/// not checked here.
inline void require_operands(const LinearRmsBackward& op, const Problem& problem) {
    require(op.tile == kPanelRows, op.name, ": the op's partials have ", op.tile, " rows, the kernels were built for ",
            kPanelRows, " (kTileRows)");
    require_operand(op.name, "x", op.x, problem.m, problem.n, DType::bf16);
    require_operand(op.name, "dx", op.dx, problem.m, problem.n, DType::bf16);
    require(op.dgamma ? op.rstd && op.dot : !op.rstd && !op.dot, op.name,
            ": rstd, dot and dgamma belong to a norm; give all of them or none");
    if (!op.rstd) return;
    require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
    require_operand(op.name, "dot", op.dot, 1, problem.m, DType::f32);
    require_operand(op.name, "dgamma", op.dgamma, ceil_div(problem.m, op.tile), problem.n, DType::f32);
}

}  // namespace coda::hopper
