// loss - from the log-sum-exp partials of the logits to the loss of a micro-batch
//
//   FinishCrossEntropy  m = max_tiles max; lse = m + log Σ_tiles sum exp(max - m)    partials (tiles, M) pairs fp32
//                       loss = lse - target_logit, 0 where the target is ignored     lse, loss (M) fp32
//   ReduceLoss          total (+)= alpha Σ_m loss                                    loss (M) fp32, total scalar
//
// The partials of a large vocabulary are hundreds of MB, so FinishCrossEntropy reads them once: a block takes 32 rows,
// its warps segments of consecutive tiles, eight pairs at a time with one rescaling of the running sum; the first warp
// merges the segments in their order. ReduceLoss is one block, in double, in one fixed order.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/pointwise.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/tiling.h"

namespace coda::hopper {

namespace {

constexpr int kRows = 32, kSegments = 16, kBatch = 8;
constexpr int kReduceThreads = 1024;

struct CrossEntropyArguments {
    const float2* partials;  // (tiles, M): max, Σ exp(logit - max)
    std::int64_t ld;         // pairs
    const float* target_logit;
    const std::int32_t* targets;
    float* lse;
    float* loss;
    int tiles;
    std::int64_t rows;
};

/// A running (max, sum). Empty: -inf, 0; an empty side contributes exp(-inf) = 0.
struct LogSumExp {
    float maximum = -INFINITY, sum = 0;

    __device__ void add(const float2 (&pairs)[kBatch], int count) {
        float largest = maximum;
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (i < count) largest = fmaxf(largest, pairs[i].x);
        sum *= expf(maximum - largest);
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (i < count) sum += pairs[i].y * expf(pairs[i].x - largest);
        maximum = largest;
    }
};

__global__ __launch_bounds__(kRows* kSegments) void finish_cross_entropy(CrossEntropyArguments arguments) {
    __shared__ float2 parts[kSegments][kRows];
    const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x;
    const int segment = static_cast<int>(threadIdx.y);
    const int length = (arguments.tiles + kSegments - 1) / kSegments;
    const int first = segment * length, last = min(first + length, arguments.tiles);
    LogSumExp running;
    if (row < arguments.rows) {
        for (int tile = first; tile < last; tile += kBatch) {
            float2 pairs[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (tile + i < last) pairs[i] = __ldcs(arguments.partials + (tile + i) * arguments.ld + row);
            running.add(pairs, last - tile);
        }
    }
    parts[segment][threadIdx.x] = {running.maximum, running.sum};
    __syncthreads();
    if (segment != 0 || row >= arguments.rows) return;
    float largest = running.maximum;
    for (int other = 1; other < kSegments; ++other) largest = fmaxf(largest, parts[other][threadIdx.x].x);
    float sum = 0;
    for (int other = 0; other < kSegments; ++other) {
        const float2 part = parts[other][threadIdx.x];
        sum += part.y * expf(part.x - largest);
    }
    const float lse = largest + logf(sum);
    arguments.lse[row] = lse;
    arguments.loss[row] = arguments.targets[row] < 0 ? 0.0f : lse - arguments.target_logit[row];
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

Launch prepare_op(const FinishCrossEntropy& op, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.targets.cols;
    CrossEntropyArguments arguments{};
    const float* partials = operands.get<float>("partials", op.partials, op.partials.rows, 2 * rows);
    require(reinterpret_cast<std::uintptr_t>(partials) % 8 == 0 && op.partials.ld % 2 == 0, op.name,
            ": pairs of partials are not aligned to 8 bytes");
    arguments.partials = reinterpret_cast<const float2*>(partials);
    arguments.ld = op.partials.ld / 2;
    arguments.target_logit = operands.get<float>("target_logit", op.target_logit, 1, rows);
    arguments.targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    arguments.lse = operands.get<float>("lse", op.lse, 1, rows);
    arguments.loss = operands.get<float>("loss", op.loss, 1, rows);
    arguments.tiles = static_cast<int>(op.partials.rows);
    arguments.rows = rows;
    const auto blocks = static_cast<unsigned>(ceil_div(rows, std::int64_t{kRows}));
    return [=](Stream stream) {
        finish_cross_entropy<<<blocks, dim3(kRows, kSegments), 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

Launch prepare_op(const ReduceLoss& op, const Memory& memory) {
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

}  // namespace coda::hopper
