// finish - the second stage of the reductions whose first stage was a GEMM's tile
//
//   FinishRstd       rstd = 1/sqrt(Σ_tiles square / width + eps)    square (tiles, M) fp32, rstd (M)
//   FinishRowSum     sum  = Σ_tiles partials                        partials (tiles, M) fp32, sum (M)
//   FinishColumnSum  grad (+)= Σ_tiles partials / norm_factor(gamma)   partials (tiles, N) fp32, gamma, grad (N)
//
// A block takes 32 columns of the partials. Its warps share the tiles in segments of consecutive tiles. Each warp sums
// its segment in the order of the tiles, and the first warp adds the segments in order: one fixed order per shape.
// Where the columns are few and the tiles many, as those of the norms of heads, the blocks of a cluster share the
// tiles, and its first block adds their sums in order.
//
// NOTE: no __ldg of what the predecessor may have written: the compiler moves such loads above the wait.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/ptx/cluster.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/hopper/sm90/overlapped_launch.h"
#include "kernels/math/rms.h"
#include "kernels/ops/finish/op.h"

namespace coda::hopper {

namespace {

constexpr int kColumns = 32;
constexpr int kClusterBlocks = 8;
constexpr std::int64_t kClusterTiles = 1024;  // with 512, a warp of a single block has 16 tiles: two batches of loads

struct Partial {
    const float* data;  // (tiles, columns)
    std::int64_t ld;
    int tiles;
    std::int64_t columns;
};

/// Sums the tiles [first, end) of a column. A thread takes segment threadIdx.y of them, and the threads of the first
/// segment return the sum of all.
template <int kSegments>
__device__ __forceinline__ float sum_segments(const Partial& partial, std::int64_t column, int first, int end) {
    __shared__ float sums[kSegments][kColumns];
    const int segment = static_cast<int>(threadIdx.y);
    const int length = (end - first + kSegments - 1) / kSegments;
    const int begin = first + segment * length, last = min(begin + length, end);
    float sum = 0;
    if (column < partial.columns) {
        const float* from = partial.data + column;
#pragma unroll 8
        for (int tile = begin; tile < last; ++tile) sum += from[tile * partial.ld];
    }
    sums[segment][threadIdx.x] = sum;
    __syncthreads();
    if (segment == 0)
        for (int other = 1; other < kSegments; ++other) sum += sums[other][threadIdx.x];
    return sum;
}

template <int kSegments, class Finish>
__global__ __launch_bounds__(kColumns* kSegments) void sum_tiles(Partial partial, Finish finish) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
    const float sum = sum_segments<kSegments>(partial, column, 0, partial.tiles);
    if (threadIdx.y == 0 && column < partial.columns) finish(column, sum);
}

template <int kSegments, class Finish>
__global__ __cluster_dims__(1, kClusterBlocks, 1)
    __launch_bounds__(kColumns* kSegments) void sum_tiles_in_cluster(Partial partial, Finish finish) {
    __shared__ float blocks[kClusterBlocks][kColumns];  // the first block's
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
    const int rank = static_cast<int>(ptx::cluster_rank());
    const int length = (partial.tiles + kClusterBlocks - 1) / kClusterBlocks, first = rank * length;
    const float own = sum_segments<kSegments>(partial, column, first, min(first + length, partial.tiles));
    ptx::cluster_sync();  // the first block has begun
    if (threadIdx.y == 0) *cooperative_groups::this_cluster().map_shared_rank(&blocks[rank][threadIdx.x], 0) = own;
    ptx::cluster_sync();
    if (rank != 0 || threadIdx.y != 0 || column >= partial.columns) return;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kClusterBlocks; ++other) sum += blocks[other][threadIdx.x];
    finish(column, sum);
}

struct StoreRstd {
    float* rstd;
    float width, eps;
    __device__ void operator()(std::int64_t row, float sum) const { rstd[row] = 1.0f / sqrtf(sum / width + eps); }
};
struct StoreSum {
    float* sum;
    __device__ void operator()(std::int64_t row, float value) const { sum[row] = value; }
};
struct StoreGradient {
    float* grad;
    const float* gamma;  // may be null
    bool accumulate;
    __device__ void operator()(std::int64_t column, float value) const {
        const float own = gamma != nullptr ? value / norm_factor(gamma[column]) : value;
        grad[column] = accumulate ? grad[column] + own : own;
    }
};

/// kSegments: row statistics have few tiles and many rows, column statistics many tiles and few columns.
template <int kSegments, class Finish>
Launch launch_sum(const char* op, const char* field, const View& view, const Memory& memory, const Finish& finish) {
    const float* data = PointwiseOperands(op, memory).get<float>(field, view, view.rows, view.cols);
    const Partial partial{data, view.ld, static_cast<int>(view.rows), view.cols};
    const auto blocks = static_cast<unsigned>(ceil_div(view.cols, std::int64_t{kColumns}));
    const bool cluster = view.rows >= kClusterTiles && blocks * kClusterBlocks <= kMultiprocessors;
    const auto kernel = cluster ? sum_tiles_in_cluster<kSegments, Finish> : sum_tiles<kSegments, Finish>;
    const dim3 grid(blocks, cluster ? kClusterBlocks : 1);
    return
        [=](Stream stream) { launch_overlapped(kernel, grid, dim3(kColumns, kSegments), 0, stream, partial, finish); };
}

constexpr int kRowSegments = 8, kColumnSegments = 32;

}  // namespace

template <>
Launch bind(const FinishRstd& op, const Plan&, const Memory& memory) {
    require(op.width >= 1, op.name, ": width ", op.width, " is not positive");
    float* rstd = PointwiseOperands(op.name, memory).get<float>("rstd", op.rstd, 1, op.square.cols);
    return launch_sum<kRowSegments>(op.name, "square", op.square, memory,
                                    StoreRstd{rstd, static_cast<float>(op.width), static_cast<float>(op.eps)});
}

template <>
Plan choose(const FinishRstd& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const FinishRowSum& op, const Plan&, const Memory& memory) {
    float* sum = PointwiseOperands(op.name, memory).get<float>("sum", op.sum, 1, op.partials.cols);
    return launch_sum<kRowSegments>(op.name, "partials", op.partials, memory, StoreSum{sum});
}

template <>
Plan choose(const FinishRowSum& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const FinishColumnSum& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    float* grad = operands.get<float>("grad", op.grad, 1, op.partials.cols);
    const float* gamma = op.gamma ? operands.get<float>("gamma", op.gamma, 1, op.partials.cols) : nullptr;
    return launch_sum<kColumnSegments>(op.name, "partials", op.partials, memory,
                                       StoreGradient{grad, gamma, op.grad.beta == Beta::accumulate});
}

template <>
Plan choose(const FinishColumnSum& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
