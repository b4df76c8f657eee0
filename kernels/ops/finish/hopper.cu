// finish - the second stage of the reductions whose first stage was a GEMM's tile
//
//   FinishRstd        rstd = 1/sqrt(Σ_tiles square / width + eps)    square (tiles, M) fp32, rstd (M)
//   FinishRowSum      sum  = Σ_tiles partials                        partials (tiles, M) fp32, sum (M)
//   FinishColumnSums  grad (+)= Σ_tiles partials / norm_factor(gamma)    partials (tiles, N) fp32, gamma, grad (N);
//                     up to three of them, of any shapes
//
// A block takes 32 columns of the partials. Its warps share the tiles in segments of consecutive tiles. Each warp sums
// its segment in the order of the tiles, and the first warp adds the segments in order: one fixed order per shape.
// Where the columns are few and the tiles many, as those of the norms of heads, the blocks of a cluster share the
// tiles, and its first block adds their sums in order. In the grid, the blocks of one column sum follow the blocks of
// the sum before.
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
constexpr int kRowSegments = 8, kColumnSegments = 32;  // rows have few tiles and are many, columns the other way round
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

template <class Finish>
__global__ __launch_bounds__(kColumns* kRowSegments) void sum_rows(Partial partial, Finish finish) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
    const float sum = sum_segments<kRowSegments>(partial, column, 0, partial.tiles);
    if (threadIdx.y == 0 && column < partial.columns) finish(column, sum);
}

Partial partial_of(const PointwiseOperands& operands, const char* field, const View& view) {
    const float* data = operands.get<float>(field, view, view.rows, view.cols);
    return {data, view.ld, static_cast<int>(view.rows), view.cols};
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

template <class Finish>
Launch launch_row_sum(const char* op, const char* field, const View& view, const Memory& memory, const Finish& finish) {
    const Partial partial = partial_of(PointwiseOperands(op, memory), field, view);
    const auto blocks = static_cast<unsigned>(ceil_div(view.cols, std::int64_t{kColumns}));
    return [=](Stream stream) {
        launch_overlapped(sum_rows<Finish>, blocks, dim3(kColumns, kRowSegments), 0, stream, partial, finish);
    };
}

struct Gradient {
    Partial partial;
    const float* gamma;  // may be null
    float* grad;
    bool accumulate;
    bool cluster;     // whether the blocks of a cluster share the tiles
    unsigned blocks;  // along x

    __device__ void store(std::int64_t column, float sum) const {
        if (threadIdx.y != 0 || column >= partial.columns) return;
        const float own = gamma != nullptr ? sum / norm_factor(gamma[column]) : sum;
        grad[column] = accumulate ? grad[column] + own : own;
    }
};

struct Gradients {
    Gradient each[FinishColumnSums::kMost];  // those that are absent have no blocks
};

/// The sum of the block's columns by the cluster's blocks, in the first one.
__device__ __forceinline__ float sum_in_cluster(const Partial& partial, std::int64_t column, int rank) {
    __shared__ float blocks[kClusterBlocks][kColumns];  // the first block's
    const int length = (partial.tiles + kClusterBlocks - 1) / kClusterBlocks, first = rank * length;
    const float own = sum_segments<kColumnSegments>(partial, column, first, min(first + length, partial.tiles));
    ptx::cluster_sync();  // the first block has begun
    if (threadIdx.y == 0) *cooperative_groups::this_cluster().map_shared_rank(&blocks[rank][threadIdx.x], 0) = own;
    ptx::cluster_sync();
    if (rank != 0 || threadIdx.y != 0) return 0;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kClusterBlocks; ++other) sum += blocks[other][threadIdx.x];
    return sum;
}

/// kClusters: along y the grid has a cluster's blocks. Of a sum that is not shared, the first one does all.
template <bool kClusters>
__global__ __cluster_dims__(1, kClusters ? kClusterBlocks : 1, 1)
    __launch_bounds__(kColumns* kColumnSegments) void sum_columns(const __grid_constant__ Gradients gradients) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    unsigned block = blockIdx.x;
    int index = 0;
    while (block >= gradients.each[index].blocks) block -= gradients.each[index++].blocks;
    const Gradient& gradient = gradients.each[index];
    const std::int64_t column = std::int64_t{block} * kColumns + threadIdx.x;
    const int rank = kClusters ? static_cast<int>(ptx::cluster_rank()) : 0;
    if (kClusters && gradient.cluster) {
        const float sum = sum_in_cluster(gradient.partial, column, rank);
        if (rank == 0) gradient.store(column, sum);
    } else if (rank == 0) {
        gradient.store(column, sum_segments<kColumnSegments>(gradient.partial, column, 0, gradient.partial.tiles));
    }
}

}  // namespace

template <>
Launch bind(const FinishRstd& op, const Plan&, const Memory& memory) {
    require(op.width >= 1, op.name, ": width ", op.width, " is not positive");
    float* rstd = PointwiseOperands(op.name, memory).get<float>("rstd", op.rstd, 1, op.square.cols);
    return launch_row_sum(op.name, "square", op.square, memory,
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
    return launch_row_sum(op.name, "partials", op.partials, memory, StoreSum{sum});
}

template <>
Plan choose(const FinishRowSum& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const FinishColumnSums& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    Gradients gradients{};
    unsigned blocks = 0;
    bool clusters = false;
    Gradient* next = gradients.each;
    for_each_sum(op, [&](const GradientSumNames& names, const GradientSum& sum) {
        const std::int64_t columns = sum.partials.cols;
        Gradient& gradient = *next++;
        gradient.partial = partial_of(operands, names.partials, sum.partials);
        if (sum.gamma) gradient.gamma = operands.get<float>(names.gamma, sum.gamma, 1, columns);
        gradient.grad = operands.get<float>(names.grad, sum.grad, 1, columns);
        gradient.accumulate = sum.grad.beta == Beta::accumulate;
        gradient.blocks = static_cast<unsigned>(ceil_div(columns, std::int64_t{kColumns}));
        gradient.cluster = sum.partials.rows >= kClusterTiles && gradient.blocks * kClusterBlocks <= kMultiprocessors;
        blocks += gradient.blocks;
        clusters = clusters || gradient.cluster;
    });
    const auto kernel = clusters ? sum_columns<true> : sum_columns<false>;
    const dim3 grid(blocks, clusters ? kClusterBlocks : 1);
    return
        [=](Stream stream) { launch_overlapped(kernel, grid, dim3(kColumns, kColumnSegments), 0, stream, gradients); };
}

template <>
Plan choose(const FinishColumnSums& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
