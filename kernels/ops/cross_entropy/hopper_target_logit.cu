// target_logit - the logit of each row's target, apart from the LM head's GEMM
//
//   target_logit = rstd Σ_k a table[target], 0 where the target is ignored    a (M, K), table (vocab, K) bf16; (M) fp32
//
// A warp takes one row: it reads two rows of K elements once, 16 bytes per access, and adds in one fixed order. Rows of
// the table may be read again, as a common token is the target of many rows; rows of a are not.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8;  // rows of a block
constexpr int kBatch = 4;  // accesses of a lane in flight, to each of the two rows

struct TargetArguments {
    const uint4* a;      // (M, vectors)
    const uint4* table;  // (vocab, vectors)
    std::int64_t a_ld, table_ld;
    const float* rstd;  // (M), may be null
    const std::int32_t* targets;
    float* target_logit;
    std::int64_t rows;
    int vectors;
};

__device__ float product(const uint4& left, const uint4& right) {
    const Eight a = unpack(left), b = unpack(right);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(a.value[i], b.value[i], sum);
    return sum;
}

// NOTE: four blocks per SM leave registers for a batch of loads. With more blocks the compiler would wait for each one.
__global__ __launch_bounds__(32 * kWarps, 4) void target_logit(TargetArguments arguments) {
    const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
    if (row >= arguments.rows) return;
    const int lane = static_cast<int>(threadIdx.x);
    const std::int32_t target = arguments.targets[row];
    if (target < 0) {
        if (lane == 0) arguments.target_logit[row] = 0;
        return;
    }
    const uint4* a = arguments.a + row * arguments.a_ld;
    const uint4* table = arguments.table + target * arguments.table_ld;
    float sum = 0;
    for (int first = lane; first < arguments.vectors; first += 32 * kBatch) {
        uint4 left[kBatch] = {}, right[kBatch] = {};
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (const int at = first + 32 * i; at < arguments.vectors) {
                left[i] = __ldcs(a + at);
                right[i] = __ldg(table + at);
            }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) sum += product(left[i], right[i]);
    }
    sum = warp_sum(sum);
    if (lane != 0) return;
    arguments.target_logit[row] = arguments.rstd == nullptr ? sum : sum * arguments.rstd[row];
}

}  // namespace

template <>
Launch bind(const TargetLogit& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    constexpr std::int64_t kVector = 8;  // elements
    const std::int64_t rows = op.a.rows, width = op.a.cols;
    TargetArguments arguments{};
    arguments.a = reinterpret_cast<const uint4*>(operands.get_vectors<Bf16>("a", op.a, rows, width));
    arguments.table =
        reinterpret_cast<const uint4*>(operands.get_vectors<Bf16>("table", op.table, op.table.rows, width));
    arguments.a_ld = op.a.ld / kVector;
    arguments.table_ld = op.table.ld / kVector;
    arguments.rstd = op.rstd ? operands.get<float>("rstd", op.rstd, 1, rows) : nullptr;
    arguments.targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    arguments.target_logit = operands.get<float>("target_logit", op.target_logit, 1, rows);
    arguments.rows = rows;
    arguments.vectors = static_cast<int>(width / kVector);
    const auto blocks = static_cast<unsigned>(ceil_div(rows, std::int64_t{kWarps}));
    return [=](Stream stream) {
        target_logit<<<blocks, dim3(32, kWarps), 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const TargetLogit& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
