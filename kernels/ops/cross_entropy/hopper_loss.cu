// loss - the loss of a micro-batch and the factors of its gradient, from the sums of the exponentials
//
//   FinishCrossEntropy  S = Σ_tiles Σ e, D = Σ_tiles Σ e d                         sums (tiles, M) pairs fp32
//                       loss = log S + shift; scale = 1 / S; 0 on ignored rows     (M) fp32
//                       e_t <- r = e_t - S, e_t the target's                       exponentials (M, V) bf16
//                       dot = (D + t (S - e_t + r)) / S, t the target's logit      (M) fp32
//                       flags: rows that these do not hold for, left to ExactCrossEntropy
//   ReduceLoss          total (+)= alpha Σ_m loss                                  loss (M) fp32, total scalar
//
// The dgrad that follows multiplies r as stored. As dot is computed from the same r, the norm's gradient stays
// orthogonal to the norm's input. With the unrounded r an error would remain that does not average out, because rows
// with the same target token round alike. Where the model is sure, S is e_t plus a small rest: sums over tiles are in
// double, so that S - e_t is as accurate as the pairs.
//
// The pairs of a large vocabulary are hundreds of MB, so FinishCrossEntropy reads them once. A block takes 32 rows. Its
// warps take segments of consecutive tiles, eight pairs at a time, and the first warp adds the segments in their order.
// ReduceLoss is one block, in double, in one fixed order.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::hopper {

namespace {

constexpr int kRows = 32, kSegments = 16, kBatch = 8;
constexpr int kReduceThreads = 1024;

struct CrossEntropyArguments {
    const float2* sums;  // (tiles, M): Σ e, Σ e d
    std::int64_t ld;     // pairs
    const float* target_logit;
    const std::int32_t* targets;
    __nv_bfloat16* exponentials;  // (M, V), null without a backward pass; then scale and dot are null too
    std::int64_t exponentials_ld;
    float* scale;
    float* dot;
    float* loss;
    std::int32_t* flags;  // may be null
    int tiles;
    std::int64_t rows;
};

__device__ void finish_row(const CrossEntropyArguments& arguments, std::int64_t row, double sum, double weighted) {
    const std::int32_t target = arguments.targets[row];
    bool ignored = target < 0;
    if (arguments.flags != nullptr) {
        // A flagged row is left to ExactCrossEntropy.
        const bool flagged =
            !ignored && cross_entropy::needs_exact(sum, weighted, static_cast<double>(arguments.target_logit[row]));
        arguments.flags[row] = flagged ? 1 : 0;
        ignored = ignored || flagged;
    }
    arguments.loss[row] = ignored ? 0.0f : static_cast<float>(cross_entropy::row_loss(sum, weighted));
    if (arguments.exponentials == nullptr) return;
    arguments.scale[row] = ignored ? 0.0f : static_cast<float>(1 / sum);
    if (ignored) {
        arguments.dot[row] = 0;
        return;
    }
    __nv_bfloat16* element = arguments.exponentials + row * arguments.exponentials_ld + target;
    const double others = sum - static_cast<double>(__bfloat162float(*element));
    const __nv_bfloat16 rest = __float2bfloat16(static_cast<float>(-others));
    *element = rest;
    const double rounding = others + static_cast<double>(__bfloat162float(rest));
    arguments.dot[row] =
        static_cast<float>((weighted + static_cast<double>(arguments.target_logit[row]) * rounding) / sum);
}

__global__ __launch_bounds__(kRows* kSegments) void finish_cross_entropy(CrossEntropyArguments arguments) {
    __shared__ double2 parts[kSegments][kRows];
    const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x;
    const int segment = static_cast<int>(threadIdx.y);
    const int length = (arguments.tiles + kSegments - 1) / kSegments;
    const int first = segment * length, last = min(first + length, arguments.tiles);
    double sum = 0, weighted = 0;
    if (row < arguments.rows) {
        for (int tile = first; tile < last; tile += kBatch) {
            float2 pairs[kBatch] = {};
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (tile + i < last) pairs[i] = __ldcs(arguments.sums + (tile + i) * arguments.ld + row);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                sum += static_cast<double>(pairs[i].x);
                weighted += static_cast<double>(pairs[i].y);
            }
        }
    }
    parts[segment][threadIdx.x] = {sum, weighted};
    __syncthreads();
    if (segment != 0 || row >= arguments.rows) return;
    for (int other = 1; other < kSegments; ++other) {
        const double2 part = parts[other][threadIdx.x];
        sum += part.x;
        weighted += part.y;
    }
    finish_row(arguments, row, sum, weighted);
}

__global__ __launch_bounds__(kReduceThreads) void reduce_loss(const float* loss, std::int64_t rows, const float* alpha,
                                                              float* total, bool accumulate) {
    __shared__ double sums[kReduceThreads];
    double sum = 0;
#pragma unroll 4
    for (std::int64_t row = threadIdx.x; row < rows; row += kReduceThreads) sum += static_cast<double>(loss[row]);
    sums[threadIdx.x] = sum;
    for (unsigned half = kReduceThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x != 0) return;
    const auto share = static_cast<float>(static_cast<double>(*alpha) * sums[0]);
    *total = accumulate ? *total + share : share;
}

}  // namespace

template <>
Launch bind(const FinishCrossEntropy& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.targets.cols;
    CrossEntropyArguments arguments{};
    const float* sums = operands.get<float>("sums", op.sums, op.sums.rows, 2 * rows);
    require(reinterpret_cast<std::uintptr_t>(sums) % 8 == 0 && op.sums.ld % 2 == 0, op.name,
            ": pairs of sums are not aligned to 8 bytes");
    arguments.sums = reinterpret_cast<const float2*>(sums);
    arguments.ld = op.sums.ld / 2;
    arguments.target_logit = operands.get<float>("target_logit", op.target_logit, 1, rows);
    arguments.targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    if (op.exponentials) {
        arguments.exponentials = reinterpret_cast<__nv_bfloat16*>(
            operands.get<Bf16>("exponentials", op.exponentials, rows, op.exponentials.cols));
        arguments.exponentials_ld = op.exponentials.ld;
        arguments.scale = operands.get<float>("scale", op.scale, 1, rows);
        arguments.dot = operands.get<float>("dot", op.dot, 1, rows);
    }
    arguments.loss = operands.get<float>("loss", op.loss, 1, rows);
    if (op.flags) arguments.flags = operands.get<std::int32_t>("flags", op.flags, 1, rows);
    arguments.tiles = static_cast<int>(op.sums.rows);
    arguments.rows = rows;
    const auto blocks = static_cast<unsigned>(ceil_div(rows, std::int64_t{kRows}));
    return [=](Stream stream) {
        finish_cross_entropy<<<blocks, dim3(kRows, kSegments), 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const FinishCrossEntropy& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const ReduceLoss& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.loss.cols;
    const float* loss = operands.get<float>("loss", op.loss, 1, rows);
    const float* alpha = operands.get<float>("alpha", op.alpha, 1, 1);
    float* total = operands.get<float>("total", op.total, 1, 1);
    const bool accumulate = op.total.beta == Beta::accumulate;
    return [=](Stream stream) {
        reduce_loss<<<1, kReduceThreads, 0, stream>>>(loss, rows, alpha, total, accumulate);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const ReduceLoss& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
