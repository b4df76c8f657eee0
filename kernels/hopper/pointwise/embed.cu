// embed - rows of the table by token, opening the first norm
//
//   x = table[token]; h = x ⊙ gamma    tokens (M) i32, table (V, d) bf16, gamma (d) fp32, x and h (M, d) bf16
//   rstd = 1/sqrt(mean x² + eps)       rstd (M) fp32
//
// A warp takes a row, 16 bytes a lane and access: the kernel moves what a copy of x and h moves. d must be a multiple
// of 8.
#include <cuda_runtime.h>

#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/pointwise.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/tiling.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8, kBatch = 4;

struct EmbedArguments {
    const std::int32_t* tokens;
    const uint4* table;
    const float4* gamma;
    uint4* x;
    uint4* h;
    float* rstd;
    std::int64_t rows, table_ld, x_ld, h_ld;  // ld in vectors
    int vectors;                              // of a row
    float width, eps;
};

__device__ Eight times(const Eight& eight, const float4& low, const float4& high) {
    return {{eight.value[0] * low.x, eight.value[1] * low.y, eight.value[2] * low.z, eight.value[3] * low.w,
             eight.value[4] * high.x, eight.value[5] * high.y, eight.value[6] * high.z, eight.value[7] * high.w}};
}

__global__ __launch_bounds__(32 * kWarps) void embed(EmbedArguments arguments) {
    const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
    if (row >= arguments.rows) return;
    const uint4* from = arguments.table + arguments.tokens[row] * arguments.table_ld;
    uint4* x = arguments.x + row * arguments.x_ld;
    uint4* h = arguments.h + row * arguments.h_ld;
    float square = 0;
    for (int first = static_cast<int>(threadIdx.x); first < arguments.vectors; first += 32 * kBatch) {
        uint4 bits[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (first + 32 * j < arguments.vectors) bits[j] = __ldg(from + first + 32 * j);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int at = first + 32 * j;
            if (at >= arguments.vectors) break;
            const Eight eight = unpack(bits[j]);
#pragma unroll
            for (const float value : eight.value) square += value * value;
            __stcs(x + at, bits[j]);
            __stcs(h + at, pack(times(eight, __ldg(arguments.gamma + 2 * at), __ldg(arguments.gamma + 2 * at + 1))));
        }
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) square += __shfl_xor_sync(0xffffffffu, square, apart);
    if (threadIdx.x == 0) arguments.rstd[row] = 1.0f / sqrtf(square / arguments.width + arguments.eps);
}

}  // namespace

Launch prepare_op(const Embed& op, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.tokens.cols, width = op.table.cols;
    EmbedArguments arguments{};
    arguments.tokens = operands.get<std::int32_t>("tokens", op.tokens, 1, rows);
    arguments.table = reinterpret_cast<const uint4*>(operands.get_vectors("table", op.table, op.table.rows, width));
    arguments.gamma = reinterpret_cast<const float4*>(operands.get_vectors<float>("gamma", op.gamma, 1, width));
    arguments.x = reinterpret_cast<uint4*>(operands.get_vectors("x", op.x, rows, width));
    arguments.h = reinterpret_cast<uint4*>(operands.get_vectors("h", op.h, rows, width));
    arguments.rstd = operands.get<float>("rstd", op.rstd, 1, rows);
    arguments.rows = rows;
    arguments.table_ld = op.table.ld / 8;
    arguments.x_ld = op.x.ld / 8;
    arguments.h_ld = op.h.ld / 8;
    arguments.vectors = static_cast<int>(width / 8);
    arguments.width = static_cast<float>(width);
    arguments.eps = static_cast<float>(op.eps);
    const auto blocks = static_cast<unsigned>(ceil_div(rows, std::int64_t{kWarps}));
    return [=](Stream stream) {
        embed<<<blocks, dim3(32, kWarps), 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace coda::hopper
