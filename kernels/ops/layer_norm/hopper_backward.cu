// layer_norm_backward - back through LayerNorm of rows of mean 0, with sums by column
//
//   dx = rstd (t - x̂ mean_j(t x̂)),  x̂ = rstd x,  t = dn ⊙ gamma
//   over 64 rows: dgamma = Σ dn ⊙ x̂;  dbeta = Σ dn and dx_sum = Σ dx before rounding, where they are asked for
//
//   dn, x, dx (M, d) bf16; rstd (M), gamma (d) fp32; dgamma, dbeta, dx_sum (ceil(M / 64), d) fp32; d a multiple of 8
//
// A block of eight warps takes 64 rows, in chunks of 256 columns, twice: once for the means of its rows, which lanes
// keep in registers over all chunks, and once for the results. The second pass begins with the chunk that the first has
// read last. So the kernel moves 6 bytes per element, and up to 4 more where the caches do not hold what a block has
// read. A chunk's column sums go from registers to shared memory, where a thread adds the eight warps' sums of one
// column in their order.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/column_sums.cuh"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/layer_norm/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = static_cast<int>(LayerNormBackward::kTileRows) / kWarps;  // of a warp
constexpr int kBatch = 4;                                                       // rows that are loaded at a time
static_assert(kChunkColumns == kThreads, "a thread finishes a column");

struct NormBackwardArguments {
    const uint4 *dn, *x;
    const float* rstd;
    const float4* gamma;
    uint4* dx;
    float *dgamma, *dbeta, *dx_sum;  // the last two may be null
    std::int64_t rows, columns;
    std::int64_t dn_ld, x_ld, dx_ld;  // in groups of 8
    std::int64_t dgamma_ld, dbeta_ld, dx_sum_ld;
};

/// Some rows of a lane's eight columns.
struct Batch {
    uint4 dn[kBatch], x[kBatch];

    /// `mine`: rows that there are; the others are 0.
    __device__ __forceinline__ void load(const NormBackwardArguments& arguments, std::int64_t first, int mine,
                                         std::int64_t group) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            dn[i] = i < mine ? __ldg(arguments.dn + (first + i) * arguments.dn_ld + group) : uint4{};
            x[i] = i < mine ? __ldg(arguments.x + (first + i) * arguments.x_ld + group) : uint4{};
        }
    }
};

__global__ __launch_bounds__(kThreads) void layer_norm_backward(
    const __grid_constant__ NormBackwardArguments arguments) {
    __shared__ ColumnSums<kWarps> dgamma_sums, dbeta_sums, dx_sums;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t first = std::int64_t{blockIdx.x} * LayerNormBackward::kTileRows + warp * kRows;
    const int rows = static_cast<int>(max(min(arguments.rows - first, std::int64_t{kRows}), std::int64_t{0}));
    float rstd[kRows], mean[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) rstd[i] = i < rows ? __ldg(arguments.rstd + first + i) : 0.0f;

    const std::int64_t chunks = (arguments.columns + kChunkColumns - 1) / kChunkColumns;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t group = chunk * 32 + lane;
        if (8 * group >= arguments.columns) break;
        const Eight gamma = load_eight(arguments.gamma + 2 * group);
#pragma unroll
        for (int from = 0; from < kRows; from += kBatch) {
            Batch batch;
            batch.load(arguments, first + from, rows - from, group);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const Eight dn = unpack(batch.dn[i]), x = unpack(batch.x[i]);
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    mean[from + i] = fmaf(dn.value[j] * gamma.value[j], x.value[j], mean[from + i]);
            }
        }
    }
    // With mean = mean_j(t x̂) rstd²: dx = rstd t - mean x.
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        mean[i] = warp_sum(mean[i]);
        mean[i] *= rstd[i] * rstd[i] * rstd[i] / static_cast<float>(arguments.columns);
    }

    for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        const std::int64_t group = chunk * 32 + lane;
        const int mine = 8 * group < arguments.columns ? rows : 0;  // rows of this lane's columns
        const Eight gamma = mine > 0 ? load_eight(arguments.gamma + 2 * group) : Eight{};
        float of_dgamma[8] = {}, of_dbeta[8] = {}, of_dx[8] = {};
#pragma unroll
        for (int from = 0; from < kRows; from += kBatch) {
            Batch batch;
            batch.load(arguments, first + from, mine - from, group);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const Eight dn = unpack(batch.dn[i]), x = unpack(batch.x[i]);
                Eight dx;
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const float scaled = rstd[from + i] * dn.value[j];
                    dx.value[j] = fmaf(scaled, gamma.value[j], -mean[from + i] * x.value[j]);
                    of_dgamma[j] = fmaf(scaled, x.value[j], of_dgamma[j]);
                    of_dbeta[j] += dn.value[j];
                    of_dx[j] += dx.value[j];
                }
                if (from + i < mine) arguments.dx[(first + from + i) * arguments.dx_ld + group] = pack(dx);
            }
        }
        dgamma_sums.put(warp, lane, of_dgamma);
        if (arguments.dbeta != nullptr) dbeta_sums.put(warp, lane, of_dbeta);
        if (arguments.dx_sum != nullptr) dx_sums.put(warp, lane, of_dx);
        __syncthreads();
        const std::int64_t column = chunk * kChunkColumns + threadIdx.x, tile = blockIdx.x;
        if (column < arguments.columns) {
            arguments.dgamma[tile * arguments.dgamma_ld + column] = dgamma_sums[threadIdx.x];
            if (arguments.dbeta != nullptr)
                arguments.dbeta[tile * arguments.dbeta_ld + column] = dbeta_sums[threadIdx.x];
            if (arguments.dx_sum != nullptr)
                arguments.dx_sum[tile * arguments.dx_sum_ld + column] = dx_sums[threadIdx.x];
        }
        __syncthreads();
    }
}

}  // namespace

template <>
Launch bind(const LayerNormBackward& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t m = op.x.rows, d = op.x.cols, tiles = ceil_div(m, LayerNormBackward::kTileRows);
    require(op.tile == LayerNormBackward::kTileRows, op.name, ": tile is ", op.tile, ", expected ",
            LayerNormBackward::kTileRows);
    limits::require_none(op.name, limits::tiles_problem("x", tiles));
    NormBackwardArguments arguments{};
    arguments.dn = reinterpret_cast<const uint4*>(operands.get_vectors("dn", op.dn, m, d));
    arguments.x = reinterpret_cast<const uint4*>(operands.get_vectors("x", op.x, m, d));
    arguments.rstd = operands.get<float>("rstd", op.rstd, 1, m);
    arguments.gamma = reinterpret_cast<const float4*>(operands.get_vectors<float>("gamma", op.gamma, 1, d));
    arguments.dx = reinterpret_cast<uint4*>(operands.get_vectors("dx", op.dx, m, d));
    arguments.dgamma = operands.get<float>("dgamma", op.dgamma, tiles, d);
    if (op.dbeta) arguments.dbeta = operands.get<float>("dbeta", op.dbeta, tiles, d);
    if (op.dx_sum) arguments.dx_sum = operands.get<float>("dx_sum", op.dx_sum, tiles, d);
    arguments.rows = m;
    arguments.columns = d;
    arguments.dn_ld = op.dn.ld / 8;
    arguments.x_ld = op.x.ld / 8;
    arguments.dx_ld = op.dx.ld / 8;
    arguments.dgamma_ld = op.dgamma.ld;
    arguments.dbeta_ld = op.dbeta.ld;
    arguments.dx_sum_ld = op.dx_sum.ld;
    return [=](Stream stream) {
        layer_norm_backward<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const LayerNormBackward& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
