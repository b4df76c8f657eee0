// rope_backward - the row statistic of the q, k, v projection, then the transposed rotation, in place
//
//   dot  = Σ over all columns of qkv ⊙ dqkv                                  (M) fp32
//   dqkv = (du cos + dv sin, dv cos - du sin) on adjacent pairs              (M, Nq) bf16, the first `rotated` columns
//
// The training schedule has this fused into attention's backward pass (AttentionRopeBackward); this is its plain form.
// One block a row.
#include <cuda_runtime.h>

#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/pointwise.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/rope.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

struct RopeArguments {
    const uint4* qkv;  // (M, vectors)
    uint4* dqkv;       // (M, vectors)
    std::int64_t qkv_ld, dqkv_ld;
    const std::int32_t* positions;
    const float* rope;  // (positions, head_dim): cos, sin
    std::int64_t rope_ld;
    float* dot;
    int vectors, rotated, head_dim;
};

__global__ __launch_bounds__(kThreads) void rope_backward(RopeArguments arguments) {
    const std::int64_t row = blockIdx.x;
    const uint4* qkv = arguments.qkv + row * arguments.qkv_ld;
    uint4* dqkv = arguments.dqkv + row * arguments.dqkv_ld;
    const float* angles = arguments.rope + arguments.positions[row] * arguments.rope_ld;
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < arguments.vectors; i += kThreads) {
        const Eight value = unpack(qkv[i]);
        Eight gradient = unpack(dqkv[i]);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum += value.value[j] * gradient.value[j];
        const int column = 8 * i;
        if (column >= arguments.rotated) continue;  // heads are whole vectors
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const float* angle = angles + (column + j) % arguments.head_dim;
            const Pair<float> turned =
                unrotate_pair(Pair<float>{gradient.value[j], gradient.value[j + 1]}, angle[0], angle[1]);
            gradient.value[j] = turned.first;
            gradient.value[j + 1] = turned.second;
        }
        dqkv[i] = pack(gradient);
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) arguments.dot[row] = sum;
}

}  // namespace

Launch prepare_op(const RopeBackward& op, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.qkv.rows, columns = op.qkv.cols;
    require(op.head_dim > 0 && op.head_dim % 8 == 0, op.name, ": head_dim ", op.head_dim, " is not a multiple of 8");
    require(op.rotated >= 0 && op.rotated <= columns && op.rotated % op.head_dim == 0, op.name, ": rotated ",
            op.rotated, " is not a number of whole heads of ", op.head_dim, " within ", columns, " columns");
    RopeArguments arguments{};
    arguments.qkv = reinterpret_cast<const uint4*>(operands.get_vectors("qkv", op.qkv, rows, columns));
    arguments.dqkv = reinterpret_cast<uint4*>(operands.get_vectors("dqkv", op.dqkv, rows, columns));
    arguments.qkv_ld = op.qkv.ld / 8;
    arguments.dqkv_ld = op.dqkv.ld / 8;
    arguments.positions = operands.get<std::int32_t>("positions", op.positions, 1, rows);
    arguments.rope = operands.get<float>("rope", op.rope, op.rope.rows, op.head_dim);
    arguments.rope_ld = op.rope.ld;
    arguments.dot = operands.get<float>("dot", op.dot, 1, rows);
    arguments.vectors = static_cast<int>(columns / 8);
    arguments.rotated = static_cast<int>(op.rotated);
    arguments.head_dim = static_cast<int>(op.head_dim);
    const auto blocks = static_cast<unsigned>(rows);
    return [=](Stream stream) {
        rope_backward<<<blocks, kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace coda::hopper
