// sum_squares, grad_norm - Euclidean norm of the flat gradient; from it, the clip factor and whether the update is
// skipped
//
//   sums = Σ grad² of each 2^16 elements              grad (n) fp32, sums (n / 2^16) fp64
//   norm = sqrt(Σ sums)                               scalar fp32
//   clip = min(1, max_norm / norm), 1 without a limit
//   skip = reasons not to update: kNonFinite, which stays once it is set, and kDropped where norm > drop_above
//
// Squares are summed in double: a block sums 2^16 consecutive elements, and a kernel of one block adds these sums. The
// order depends only on n. Elements are read once, 16 bytes per access; n must be a multiple of 4.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/optimizer/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256, kBatch = 8, kFinishThreads = 1024;
constexpr int kBlockVectors = static_cast<int>(SumSquares::kBlock / 4);
static_assert(kBlockVectors % (kThreads * kBatch) == 0, "a block is whole batches of every thread");

__global__ __launch_bounds__(kThreads) void sum_squares(const float4* grad, std::int64_t vectors, double* sums) {
    const std::int64_t first = std::int64_t{blockIdx.x} * kBlockVectors + threadIdx.x;
    double sum = 0;
    for (int i = 0; i < kBlockVectors; i += kBatch * kThreads) {
        float4 batch[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const std::int64_t at = first + i + j * kThreads;
            batch[j] = at < vectors ? __ldcs(grad + at) : float4{};
        }
#pragma unroll
        for (const float4& four : batch) {
            const double x = four.x, y = four.y, z = four.z, w = four.w;
            sum += x * x + y * y + (z * z + w * w);
        }
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct FinishArguments {
    const double* sums;
    std::int64_t count;
    const float* loss;
    const float* drop_above;
    float* norm;
    float* clip;
    std::int32_t* skip;
    double max_norm;
};

__global__ __launch_bounds__(kFinishThreads) void finish_norm(FinishArguments arguments) {
    double sum = 0;
#pragma unroll 8
    for (std::int64_t i = threadIdx.x; i < arguments.count; i += kFinishThreads) sum += arguments.sums[i];
    sum = block_sum<kFinishThreads>(sum);
    if (threadIdx.x != 0) return;
    const double root = sqrt(sum), limit = arguments.max_norm / root;
    const auto norm = static_cast<float>(root);
    *arguments.norm = norm;
    *arguments.clip = arguments.max_norm > 0 && limit < 1 ? static_cast<float>(limit) : 1.0f;
    std::int32_t skip = *arguments.skip & GradNorm::kNonFinite;
    if (!isfinite(norm) || !isfinite(*arguments.loss)) skip |= GradNorm::kNonFinite;
    if (norm > *arguments.drop_above) skip |= GradNorm::kDropped;
    *arguments.skip = skip;
}

}  // namespace

template <>
Launch bind(const SumSquares& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t count = op.grad.cols, blocks = SumSquares::sums_of(count);
    const auto* grad = reinterpret_cast<const float4*>(operands.get_vectors<float>("grad", op.grad, 1, count));
    auto* sums = operands.get<double>("sums", op.sums, 1, blocks);
    return [=](Stream stream) {
        sum_squares<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(grad, count / 4, sums);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const SumSquares& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const GradNorm& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    FinishArguments finish{};
    finish.count = op.sums.cols;
    finish.sums = operands.get<double>("sums", op.sums, 1, finish.count);
    finish.loss = operands.get<float>("loss", op.loss, 1, 1);
    finish.drop_above = operands.get<float>("drop_above", op.drop_above, 1, 1);
    finish.norm = operands.get<float>("norm", op.norm, 1, 1);
    finish.clip = operands.get<float>("clip", op.clip, 1, 1);
    finish.skip = operands.get<std::int32_t>("skip", op.skip, 1, 1);
    finish.max_norm = op.max_norm;
    return [=](Stream stream) {
        finish_norm<<<1, kFinishThreads, 0, stream>>>(finish);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const GradNorm& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
