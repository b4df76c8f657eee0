// centre_rows - dx -= mean of its row
//
//   dx (M, d) bf16, d a multiple of 8
//
// Bound by memory. A warp takes a row, 16 bytes per lane and access: once for the sum, in a fixed order, and once more,
// from L1 or L2, for the difference.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/centre_rows/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8;

struct CentreRowsArguments {
    uint4* dx;
    std::int64_t rows, ld;  // ld in vectors
    int vectors;            // of a row
    float width;
};

__global__ __launch_bounds__(32 * kWarps) void centre_rows(CentreRowsArguments arguments) {
    const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
    if (row >= arguments.rows) return;
    uint4* dx = arguments.dx + row * arguments.ld;
    float sum = 0;
    for (int at = static_cast<int>(threadIdx.x); at < arguments.vectors; at += 32) {
        const Eight eight = unpack(dx[at]);
#pragma unroll
        for (const float value : eight.value) sum += value;
    }
    sum = warp_sum(sum);
    const float mean = sum / arguments.width;
    for (int at = static_cast<int>(threadIdx.x); at < arguments.vectors; at += 32) {
        Eight eight = unpack(dx[at]);
#pragma unroll
        for (float& value : eight.value) value -= mean;
        dx[at] = pack(eight);
    }
}

}  // namespace

template <>
Launch bind(const CentreRows& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.dx.rows, width = op.dx.cols;
    const CentreRowsArguments arguments{.dx = reinterpret_cast<uint4*>(operands.get_vectors("dx", op.dx, rows, width)),
                                        .rows = rows,
                                        .ld = op.dx.ld / 8,
                                        .vectors = static_cast<int>(width / 8),
                                        .width = static_cast<float>(width)};
    const auto blocks = static_cast<unsigned>(ceil_div(rows, std::int64_t{kWarps}));
    return [=](Stream stream) {
        centre_rows<<<blocks, dim3(32, kWarps), 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const CentreRows& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
