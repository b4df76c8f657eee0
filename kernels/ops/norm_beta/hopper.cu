// norm_beta - the bias beta of a norm before a projection
//
//   FoldBeta      v = b + Σ_j working_oj beta_j / norm_factor(gamma_j)
//                 working (N, d) bf16; gamma, beta (d), b, v (N) fp32; b 0 where absent
//   BetaBackward  grad += db ⊗ beta; dbeta = Σ_o db_o working_oj over 64 rows o
//                 db (N), beta (d), grad (N, d), dbeta (ceil(N / 64), d) fp32; working (N, d) bf16
//
// d is a multiple of 8. Both are bound by memory, 2 and 10 bytes per element of W.
//
// fold_beta: a warp takes a row, a lane 16 bytes of it at a time. A block's threads divide beta by gamma once for all
// of its eight rows, in chunks of 2048 columns. beta_backward: a block of eight warps takes 64 rows and 256 columns, a
// lane eight columns of eight rows of its warp.
//
// NOTE: no __ldg of what the predecessor may have written: the compiler moves such loads above the wait.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/column_sums.cuh"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/sm90/overlapped_launch.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/math/rms.h"
#include "kernels/ops/norm_beta/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

constexpr int kGroups = kThreads / 32;  // of a lane and chunk: a chunk has a group of 8 columns per thread

struct FoldArguments {
    const uint4* working;
    const float4 *gamma, *beta;
    const float* bias;  // may be null
    float* v;
    std::int64_t rows, groups, ld;  // groups of 8 columns, of a row and from one row to the next
};

__global__ __launch_bounds__(kThreads) void fold_beta(const __grid_constant__ FoldArguments arguments) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    __shared__ float4 factors[2][kThreads];  // the halves of each group of a chunk
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + thread / 32;
    const uint4* working = arguments.working + row * arguments.ld;
    float sum = 0;
    for (std::int64_t chunk = 0; chunk < arguments.groups; chunk += kThreads) {
        const auto groups = static_cast<int>(min(arguments.groups - chunk, std::int64_t{kThreads}));
        uint4 loaded[kGroups];
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
            const int group = 32 * i + lane;
            loaded[i] = row < arguments.rows && group < groups ? working[chunk + group] : uint4{};
        }
        if (thread < groups) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float4 gamma = arguments.gamma[2 * (chunk + thread) + half];
                const float4 beta = arguments.beta[2 * (chunk + thread) + half];
                factors[half][thread] = {beta.x / norm_factor(gamma.x), beta.y / norm_factor(gamma.y),
                                         beta.z / norm_factor(gamma.z), beta.w / norm_factor(gamma.w)};
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
            const int group = 32 * i + lane;
            if (group >= groups) break;
            const Eight w = unpack(loaded[i]);
            const float4 low = factors[0][group], high = factors[1][group];
            const float by[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int j = 0; j < 8; ++j) sum = fmaf(w.value[j], by[j], sum);
        }
        __syncthreads();
    }
    sum = warp_sum(sum);
    if (lane == 0 && row < arguments.rows)
        arguments.v[row] = arguments.bias != nullptr ? arguments.bias[row] + sum : sum;
}

constexpr int kRows = static_cast<int>(BetaBackward::kTileRows) / kWarps;  // of a warp
constexpr int kBatch = 4;  // rows whose gradients are loaded before any is stored
static_assert(kChunkColumns == kThreads, "a thread finishes a column");

struct BetaArguments {
    const float* db;
    const uint4* working;
    const float4* beta;
    float4* grad;
    float* dbeta;
    std::int64_t rows, columns;
    std::int64_t working_ld, grad_ld, dbeta_ld;  // in groups of 8, of 4, and in elements
    unsigned chunks;                             // of a row
};

__global__ __launch_bounds__(kThreads) void beta_backward(const __grid_constant__ BetaArguments arguments) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    __shared__ ColumnSums<kWarps> sums;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t tile = blockIdx.x / arguments.chunks, chunk = blockIdx.x % arguments.chunks;
    const std::int64_t first = tile * BetaBackward::kTileRows + warp * kRows, group = chunk * 32 + lane;
    const int rows = 8 * group < arguments.columns
                         ? static_cast<int>(max(min(arguments.rows - first, std::int64_t{kRows}), std::int64_t{0}))
                         : 0;  // of this lane's columns
    Eight beta{};
    if (rows > 0) {
        const float4 low = arguments.beta[2 * group], high = arguments.beta[2 * group + 1];
        beta = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    }
    float sum[8] = {};
#pragma unroll 1
    for (int from = 0; from < rows; from += kBatch) {
        uint4 loaded[kBatch];
        float4 low[kBatch], high[kBatch];
        float db[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (from + i >= rows) break;
            const std::int64_t row = first + from + i;
            const float4* grad = arguments.grad + row * arguments.grad_ld + 2 * group;
            loaded[i] = arguments.working[row * arguments.working_ld + group];
            low[i] = grad[0];
            high[i] = grad[1];
            db[i] = arguments.db[row];
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (from + i >= rows) break;
            float4* grad = arguments.grad + (first + from + i) * arguments.grad_ld + 2 * group;
            const Eight w = unpack(loaded[i]);
#pragma unroll
            for (int j = 0; j < 8; ++j) sum[j] = fmaf(db[i], w.value[j], sum[j]);
            grad[0] = {fmaf(db[i], beta.value[0], low[i].x), fmaf(db[i], beta.value[1], low[i].y),
                       fmaf(db[i], beta.value[2], low[i].z), fmaf(db[i], beta.value[3], low[i].w)};
            grad[1] = {fmaf(db[i], beta.value[4], high[i].x), fmaf(db[i], beta.value[5], high[i].y),
                       fmaf(db[i], beta.value[6], high[i].z), fmaf(db[i], beta.value[7], high[i].w)};
        }
    }
    sums.put(warp, lane, sum);
    __syncthreads();
    const std::int64_t column = chunk * kChunkColumns + threadIdx.x;
    if (column < arguments.columns) arguments.dbeta[tile * arguments.dbeta_ld + column] = sums[threadIdx.x];
}

}  // namespace

template <>
Launch bind(const FoldBeta& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t n = op.working.rows, d = op.working.cols, blocks = ceil_div(n, std::int64_t{kWarps});
    FoldArguments arguments{};
    arguments.working = reinterpret_cast<const uint4*>(operands.get_vectors("working", op.working, n, d));
    limits::require_none(op.name, limits::tiles_problem("working", blocks));
    arguments.gamma = reinterpret_cast<const float4*>(operands.get_vectors<float>("gamma", op.gamma, 1, d));
    arguments.beta = reinterpret_cast<const float4*>(operands.get_vectors<float>("beta", op.beta, 1, d));
    if (op.bias) arguments.bias = operands.get<float>("bias", op.bias, 1, n);
    arguments.v = operands.get<float>("v", op.v, 1, n);
    arguments.rows = n;
    arguments.groups = d / 8;
    arguments.ld = op.working.ld / 8;
    return [=](Stream stream) {
        launch_overlapped(fold_beta, static_cast<unsigned>(blocks), kThreads, 0, stream, arguments);
    };
}

template <>
Plan choose(const FoldBeta& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const BetaBackward& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t n = op.working.rows, d = op.working.cols, tiles = ceil_div(n, BetaBackward::kTileRows);
    require(op.tile == BetaBackward::kTileRows, op.name, ": tile is ", op.tile, ", expected ", BetaBackward::kTileRows);
    const std::int64_t chunks = ceil_div(d, std::int64_t{kChunkColumns});
    limits::require_none(op.name, limits::tiles_problem("working", tiles * chunks));
    BetaArguments arguments{};
    arguments.db = operands.get<float>("db", op.db, 1, n);
    arguments.working = reinterpret_cast<const uint4*>(operands.get_vectors("working", op.working, n, d));
    arguments.beta = reinterpret_cast<const float4*>(operands.get_vectors<float>("beta", op.beta, 1, d));
    arguments.grad = reinterpret_cast<float4*>(operands.get_vectors<float>("grad", op.grad, n, d));
    arguments.dbeta = operands.get<float>("dbeta", op.dbeta, tiles, d);
    arguments.rows = n;
    arguments.columns = d;
    arguments.working_ld = op.working.ld / 8;
    arguments.grad_ld = op.grad.ld / 4;
    arguments.dbeta_ld = op.dbeta.ld;
    arguments.chunks = static_cast<unsigned>(chunks);
    return [=](Stream stream) {
        launch_overlapped(beta_backward, static_cast<unsigned>(tiles * chunks), kThreads, 0, stream, arguments);
    };
}

template <>
Plan choose(const BetaBackward& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
