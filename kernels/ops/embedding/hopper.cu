// embed - rows of the table by token, with the first norm's 1/rms
//
//   x = table[token]                   tokens (M) i32, table (V, d) bf16 or fp32, x (M, d) bf16
//   x = round(x + position_table[position]) with learned positions: positions (M) i32, position_table (P, d) bf16
//   x = round(x - mean x), of x before it was rounded for positions, where the op is centred
//   rstd = 1/sqrt(mean x² + eps)       rstd (M) fp32, of x as stored
//
// A warp takes one row, with 16 bytes of x per lane and access: the kernel moves as many bytes as a copy of x. d must
// be a multiple of 8.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/embedding/op.h"

namespace coda::hopper {

namespace {

constexpr int kWarps = 8, kBatch = 4;

/// Eight elements of a row of the table.
struct EightF32 {
    float4 low, high;
};
__device__ uint4 load_rounded(const uint4* from) { return __ldg(from); }
__device__ uint4 load_rounded(const EightF32* from) {
    const float4 low = __ldg(&from->low), high = __ldg(&from->high);
    return pack({{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}});
}

template <class Vector>
struct EmbedArguments {
    const std::int32_t* tokens;
    const Vector* table;
    uint4* x;
    float* rstd;
    std::int64_t rows, table_ld, x_ld;  // ld in vectors
    int vectors;                        // of a row
    float width, eps;
};

template <class Vector>
struct PositionArguments : EmbedArguments<Vector> {
    const std::int32_t* positions;
    const uint4* position_table;
    std::int64_t position_ld;
};

/// The position table may be null.
template <class Vector>
struct CentredArguments : PositionArguments<Vector> {};

template <class Vector>
__device__ Eight sum_at(const PositionArguments<Vector>& arguments, uint4 token, std::int64_t row, int at) {
    Eight sum = unpack(token);
    const Eight position =
        unpack(__ldg(arguments.position_table + arguments.positions[row] * arguments.position_ld + at));
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.value[i] += position.value[i];
    return sum;
}
template <class Vector>
__device__ Eight sum_at(const CentredArguments<Vector>& arguments, uint4 token, std::int64_t row, int at) {
    if (arguments.position_table == nullptr) return unpack(token);
    return sum_at(static_cast<const PositionArguments<Vector>&>(arguments), token, row, at);
}

/// What is taken out of row `row`, by its warp.
template <class Vector>
__device__ float mean_of(const EmbedArguments<Vector>&, const Vector*, std::int64_t) {
    return 0;
}
template <class Vector>
__device__ float mean_of(const CentredArguments<Vector>& arguments, const Vector* from, std::int64_t row) {
    float sum = 0;
    for (int at = static_cast<int>(threadIdx.x); at < arguments.vectors; at += 32) {
        const Eight eight = sum_at(arguments, load_rounded(from + at), row, at);
#pragma unroll
        for (const float value : eight.value) sum += value;
    }
    sum = warp_sum(sum);
    return sum / arguments.width;
}

/// Vector `at` of row `row` of x, from the vector `token` of the table.
template <class Vector>
__device__ uint4 x_at(const EmbedArguments<Vector>&, uint4 token, std::int64_t, int, float) {
    return token;
}
template <class Vector>
__device__ uint4 x_at(const PositionArguments<Vector>& arguments, uint4 token, std::int64_t row, int at, float) {
    return pack(sum_at(arguments, token, row, at));
}
template <class Vector>
__device__ uint4 x_at(const CentredArguments<Vector>& arguments, uint4 token, std::int64_t row, int at, float mean) {
    Eight sum = sum_at(arguments, token, row, at);
#pragma unroll
    for (float& value : sum.value) value -= mean;
    return pack(sum);
}

template <class Vector, template <class> class Arguments>
__global__ __launch_bounds__(32 * kWarps) void embed(Arguments<Vector> arguments) {
    const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
    if (row >= arguments.rows) return;
    const Vector* from = arguments.table + arguments.tokens[row] * arguments.table_ld;
    uint4* x = arguments.x + row * arguments.x_ld;
    const float mean = mean_of(arguments, from, row);
    float square = 0;
    for (int first = static_cast<int>(threadIdx.x); first < arguments.vectors; first += 32 * kBatch) {
        uint4 bits[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
            if (first + 32 * j < arguments.vectors) bits[j] = load_rounded(from + first + 32 * j);
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int at = first + 32 * j;
            if (at >= arguments.vectors) break;
            bits[j] = x_at(arguments, bits[j], row, at, mean);
            const Eight eight = unpack(bits[j]);
#pragma unroll
            for (const float value : eight.value) square += value * value;
            __stcs(x + at, bits[j]);
        }
    }
    square = warp_sum(square);
    if (threadIdx.x == 0) arguments.rstd[row] = 1.0f / sqrtf(square / arguments.width + arguments.eps);
}

}  // namespace

template <>
Launch bind(const Embed& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.tokens.cols, width = op.x.cols;
    const auto prepare = [&]<class Vector>(const Vector* table) {
        const EmbedArguments<Vector> arguments{
            .tokens = operands.get<std::int32_t>("tokens", op.tokens, 1, rows),
            .table = table,
            .x = reinterpret_cast<uint4*>(operands.get_vectors("x", op.x, rows, width)),
            .rstd = operands.get<float>("rstd", op.rstd, 1, rows),
            .rows = rows,
            .table_ld = op.table.ld / 8,
            .x_ld = op.x.ld / 8,
            .vectors = static_cast<int>(width / 8),
            .width = static_cast<float>(width),
            .eps = static_cast<float>(op.eps)};
        const auto blocks = static_cast<unsigned>(ceil_div(rows, std::int64_t{kWarps}));
        const auto launch = [blocks]<template <class> class Arguments>(const Arguments<Vector>& given) -> Launch {
            return [=](Stream stream) {
                embed<Vector, Arguments><<<blocks, dim3(32, kWarps), 0, stream>>>(given);
                CUDA_CHECK(cudaGetLastError());
            };
        };
        if (!op.position_table && !op.centred) return launch(arguments);
        CentredArguments<Vector> more{{arguments, nullptr, nullptr, 0}};
        if (const View& positions = op.position_table) {
            more.positions = operands.get<std::int32_t>("positions", op.positions, 1, rows);
            more.position_table = reinterpret_cast<const uint4*>(
                operands.get_vectors("position_table", positions, positions.rows, width));
            more.position_ld = positions.ld / 8;
        }
        return op.centred ? launch(more) : launch(static_cast<const PositionArguments<Vector>&>(more));
    };
    if (op.table.dtype != DType::f32)
        return prepare(reinterpret_cast<const uint4*>(operands.get_vectors("table", op.table, op.table.rows, width)));
    const float* table = operands.get_vectors<float>("table", op.table, op.table.rows, width);
    require(op.table.ld % 8 == 0, op.name, ": rows of table, ", op.table.ld,
            " elements apart, are not whole runs of eight elements");
    return prepare(reinterpret_cast<const EightF32*>(table));
}

template <>
Plan choose(const Embed& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
