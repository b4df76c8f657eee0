// round_weights - a matrix of the working copy from the master weights
//
//   working = round(master), with gamma round(master norm_factor(gamma)), gamma over the columns
//   master (N, K) and gamma (K) fp32, working (N, K) bf16; K a multiple of 8
//
// Bound by memory, 6 bytes per element. A thread takes eight neighbouring columns of a row.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/rms.h"
#include "kernels/ops/round_weights/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

struct RoundArguments {
    const float4 *master, *gamma;  // gamma may be null
    uint4* working;
    unsigned groups, width;              // of 8 columns: of the matrix, and of a row
    std::int64_t master_ld, working_ld;  // in groups of 4, and of 8
};

__global__ __launch_bounds__(kThreads) void round_weights(const RoundArguments arguments) {
    const unsigned at = blockIdx.x * kThreads + threadIdx.x;
    if (at >= arguments.groups) return;
    const unsigned row = at / arguments.width, group = at % arguments.width;
    const float4* const from = arguments.master + row * arguments.master_ld + 2 * group;
    float4 halves[2] = {__ldcs(from), __ldcs(from + 1)};
    if (arguments.gamma != nullptr) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 gamma = __ldg(arguments.gamma + 2 * group + i);
            halves[i].x *= norm_factor(gamma.x);
            halves[i].y *= norm_factor(gamma.y);
            halves[i].z *= norm_factor(gamma.z);
            halves[i].w *= norm_factor(gamma.w);
        }
    }
    arguments.working[row * arguments.working_ld + group] = pack(
        {{halves[0].x, halves[0].y, halves[0].z, halves[0].w, halves[1].x, halves[1].y, halves[1].z, halves[1].w}});
}

}  // namespace

template <>
Launch bind(const RoundWeights& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.working.rows, width = op.working.cols;
    require(width % 8 == 0, op.name, ": K is ", width, ", not a multiple of 8");
    RoundArguments arguments{};
    arguments.working = reinterpret_cast<uint4*>(operands.get_vectors("working", op.working, rows, width));
    arguments.master = reinterpret_cast<const float4*>(operands.get_vectors<float>("master", op.master, rows, width));
    if (op.gamma)
        arguments.gamma = reinterpret_cast<const float4*>(operands.get_vectors<float>("gamma", op.gamma, 1, width));
    const std::int64_t groups = rows * (width / 8), blocks = ceil_div(groups, std::int64_t{kThreads});
    limits::require_none(op.name, limits::tiles_problem("working", blocks));
    arguments.groups = static_cast<unsigned>(groups);
    arguments.width = static_cast<unsigned>(width / 8);
    arguments.master_ld = op.master.ld / 4;
    arguments.working_ld = op.working.ld / 8;
    return [=](Stream stream) {
        round_weights<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const RoundWeights& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
