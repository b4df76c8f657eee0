// layer_norm - LayerNorm of rows of mean 0
//
//   n = rstd x ⊙ gamma + beta     x, n (M, d) bf16; rstd (M), gamma, beta (d) fp32; d a multiple of 8
//
// Bound by memory, 4 bytes per element. A block of eight warps takes 64 rows and 256 columns. A lane holds eight
// columns of gamma and beta for eight rows of its warp, 16 bytes per row, which it loads before it uses any.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/layer_norm/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 8;          // of a warp
constexpr int kColumns = 32 * 8;  // of a block

struct NormArguments {
    const uint4* x;
    const float* rstd;
    const float4 *gamma, *beta;
    uint4* n;
    std::int64_t rows, groups, x_ld, n_ld;  // groups of 8 columns, of a row and from one row to the next
    unsigned chunks;                        // of 256 columns, of a row
};

__global__ __launch_bounds__(kThreads) void layer_norm(const __grid_constant__ NormArguments arguments) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t tile = blockIdx.x / arguments.chunks, chunk = blockIdx.x % arguments.chunks;
    const std::int64_t first = (tile * kWarps + warp) * kRows, group = chunk * 32 + lane;
    if (group >= arguments.groups) return;
    uint4 loaded[kRows];
    float rstd[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        if (first + i >= arguments.rows) break;
        loaded[i] = __ldcs(arguments.x + (first + i) * arguments.x_ld + group);
        rstd[i] = __ldg(arguments.rstd + first + i);
    }
    const Eight gamma = load_eight(arguments.gamma + 2 * group), beta = load_eight(arguments.beta + 2 * group);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        if (first + i >= arguments.rows) break;
        Eight n = unpack(loaded[i]);
#pragma unroll
        for (int j = 0; j < 8; ++j) n.value[j] = fmaf(rstd[i] * n.value[j], gamma.value[j], beta.value[j]);
        arguments.n[(first + i) * arguments.n_ld + group] = pack(n);
    }
}

}  // namespace

template <>
Launch bind(const LayerNorm& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t m = op.x.rows, d = op.x.cols;
    NormArguments arguments{};
    arguments.x = reinterpret_cast<const uint4*>(operands.get_vectors("x", op.x, m, d));
    const std::int64_t chunks = ceil_div(d, std::int64_t{kColumns});
    const std::int64_t blocks = ceil_div(m, std::int64_t{kWarps * kRows}) * chunks;
    limits::require_none(op.name, limits::tiles_problem("x", blocks));
    arguments.rstd = operands.get<float>("rstd", op.rstd, 1, m);
    arguments.gamma = reinterpret_cast<const float4*>(operands.get_vectors<float>("gamma", op.gamma, 1, d));
    arguments.beta = reinterpret_cast<const float4*>(operands.get_vectors<float>("beta", op.beta, 1, d));
    arguments.n = reinterpret_cast<uint4*>(operands.get_vectors("n", op.n, m, d));
    arguments.rows = m;
    arguments.groups = d / 8;
    arguments.x_ld = op.x.ld / 8;
    arguments.n_ld = op.n.ld / 8;
    arguments.chunks = static_cast<unsigned>(chunks);
    return [=](Stream stream) {
        layer_norm<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const LayerNorm& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
