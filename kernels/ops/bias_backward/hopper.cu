// bias_backward - dot -= Σ_n b_n dz_n by rows, and sum = Σ_rows dz / rstd by columns
//
//   dz (M, N) bf16; rstd (M), bias (N), dot (M) fp32; sum (ceil(M / 64), N) fp32; rstd 1 where absent; N a multiple of
//   8
//
// Bound by memory, 2 bytes per element. A block of eight warps takes 64 rows, in chunks of 256 columns. A lane holds
// eight columns of eight rows of its warp, 16 bytes per row, and loads those of the next chunk before it uses them. It
// keeps its share of dot in registers over all chunks, and lanes are added at the end. A chunk's column sums go from
// registers to shared memory, where a thread adds the eight warps' sums of one column in their order.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/column_sums.cuh"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/bias_backward/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = static_cast<int>(BiasBackward::kTileRows) / kWarps;  // of a warp
static_assert(kChunkColumns == kThreads, "a thread finishes a column");

struct BiasArguments {
    const uint4* dz;
    const float* rstd;  // may be null
    const float4* bias;
    float *dot, *sum;
    std::int64_t rows, columns;
    std::int64_t dz_ld, sum_ld;  // of dz in groups of 8
};

__global__ __launch_bounds__(kThreads) void bias_backward(const __grid_constant__ BiasArguments arguments) {
    __shared__ ColumnSums<kWarps> sums[2];  // of even and of odd chunks
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t first = std::int64_t{blockIdx.x} * BiasBackward::kTileRows + warp * kRows;
    const int rows = static_cast<int>(max(min(arguments.rows - first, std::int64_t{kRows}), std::int64_t{0}));
    float over[kRows], of_bias[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i)
        over[i] = arguments.rstd != nullptr && i < rows ? 1.0f / __ldg(arguments.rstd + first + i) : 1.0f;

    struct Chunk {
        uint4 dz[kRows];
        float4 bias[2];
    };
    const auto load = [&](std::int64_t column) {
        const std::int64_t group = column / 8 + lane;
        const int mine = 8 * group < arguments.columns ? rows : 0;  // rows of this lane's columns
        Chunk chunk{};
#pragma unroll
        for (int i = 0; i < kRows; ++i)
            if (i < mine) chunk.dz[i] = __ldg(arguments.dz + (first + i) * arguments.dz_ld + group);
        if (mine > 0) {
            chunk.bias[0] = __ldg(arguments.bias + 2 * group);
            chunk.bias[1] = __ldg(arguments.bias + 2 * group + 1);
        }
        return chunk;
    };
    Chunk next = load(0);
    for (std::int64_t begin = 0; begin < arguments.columns; begin += kChunkColumns) {
        const Chunk chunk = next;
        next = load(begin + kChunkColumns);
        const auto [low, high] = chunk.bias;
        const float by[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        float sum[8] = {};
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const Eight dz = unpack(chunk.dz[i]);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                sum[j] = fmaf(dz.value[j], over[i], sum[j]);
                of_bias[i] = fmaf(by[j], dz.value[j], of_bias[i]);
            }
        }
        ColumnSums<kWarps>& of_chunk = sums[begin / kChunkColumns % 2];
        of_chunk.put(warp, lane, sum);
        __syncthreads();
        const std::int64_t column = begin + threadIdx.x;
        if (column < arguments.columns) arguments.sum[blockIdx.x * arguments.sum_ld + column] = of_chunk[threadIdx.x];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        of_bias[i] = warp_sum(of_bias[i]);
        if (lane == 0 && i < rows) arguments.dot[first + i] -= of_bias[i];
    }
}

}  // namespace

template <>
Launch bind(const BiasBackward& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t m = op.dz.rows, n = op.dz.cols, tiles = ceil_div(m, BiasBackward::kTileRows);
    require(op.tile == BiasBackward::kTileRows, op.name, ": tile is ", op.tile, ", expected ", BiasBackward::kTileRows);
    limits::require_none(op.name, limits::tiles_problem("dz", tiles));
    BiasArguments arguments{};
    arguments.dz = reinterpret_cast<const uint4*>(operands.get_vectors("dz", op.dz, m, n));
    if (op.rstd) arguments.rstd = operands.get<float>("rstd", op.rstd, 1, m);
    arguments.bias = reinterpret_cast<const float4*>(operands.get_vectors<float>("bias", op.bias, 1, n));
    arguments.dot = operands.get<float>("dot", op.dot, 1, m);
    arguments.sum = operands.get<float>("sum", op.sum, tiles, n);
    arguments.rows = m;
    arguments.columns = n;
    arguments.dz_ld = op.dz.ld / 8;
    arguments.sum_ld = op.sum.ld;
    return [=](Stream stream) {
        bias_backward<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const BiasBackward& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
