// quantise_f8 - a bf16 matrix rounded to FP8, by rows and transposed
//
//   v = x rstd;  code = f8(scale v);  rows = code;  columns = codeᵀ;  amax = max(amax, |v|)
//   x (M, N) bf16, rstd (M) and scale fp32; rows (M, N), columns (N, M) f8e4m3 or f8e5m2; N, and with columns M, in
//   whole 16s
//
// Bound by memory: 2 bytes read and 1 or 2 written per element. A block of 256 threads takes 128 tokens of 128 columns,
// 32 KiB of x that it loads before it uses any. A thread takes micro-tiles of 4 tokens x 8 columns: 16 bytes of x and 8
// of `rows` per token. The tokens are those that are neighbours in `columns`, in paired order 2q, 2q + 8, 2q + 1,
// 2q + 9 of a group of 16. So the transposed codes of a column are one word, which byte permutations make.
//
// Words go through shared memory, [column][token], 128 bytes per column. The word's index is xored with twice the
// number of the column's group of 8. A warp stores the words of 16 groups and 2 quads to 32 banks, and reads whole
// columns of 128 bytes, 16 per thread; an odd group's halves of 16 bytes are swapped. `columns` is written in lines of
// 128 bytes.
#include <cuda_runtime.h>

#include "kernels/core/f8.h"
#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/f8_quads.cuh"
#include "kernels/hopper/sm90/magnitude.cuh"
#include "kernels/ops/quantise/shape.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kBlocks = 3;                    // per multiprocessor: with four, a thread's x and rstd would spill
constexpr int kTokens = 128, kColumns = 128;  // of a block
constexpr int kGroups = kColumns / 8;         // of 8 columns
constexpr int kQuads = kThreads / kGroups;    // of 4 tokens, per pass
constexpr int kPasses = kTokens / (4 * kQuads);
constexpr int kVectors = kTokens / 16;  // of 16 bytes, per column of the transposed tile

struct QuantiseArguments {
    const uint4* x;
    const float *rstd, *scale;  // rstd may be null, and of the results any
    uint2* rows;
    uint4* columns;
    float* amax;
    std::int64_t tokens, width;
    std::int64_t x_ld, rows_ld, columns_ld;  // in x 8, in rows 8, in columns 16 elements
    unsigned column_tiles;
    bool paired;
};

template <DType kFormat>
__global__ __launch_bounds__(kThreads, kBlocks) void quantise_f8(const __grid_constant__ QuantiseArguments arguments) {
    __shared__ uint4 tile[kColumns * kVectors];
    __shared__ float largest_of_warp[kWarps];
    const std::int64_t first_token = std::int64_t{blockIdx.x / arguments.column_tiles} * kTokens;
    const std::int64_t first_column = std::int64_t{blockIdx.x % arguments.column_tiles} * kColumns;
    const int tokens = static_cast<int>(min(arguments.tokens - first_token, std::int64_t{kTokens}));
    const int columns = static_cast<int>(min(arguments.width - first_column, std::int64_t{kColumns}));
    const int thread = static_cast<int>(threadIdx.x), group = thread % kGroups;
    const int mine = 8 * group < columns ? tokens : 0;  // tokens of this thread's columns
    const float scale = *arguments.scale;

    uint4 loaded[kPasses][4];
    float rstd[kPasses][4];
    const uint4* x = arguments.x + first_token * arguments.x_ld + first_column / 8 + group;
    const bool normalises = arguments.rstd != nullptr;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int token = token_of(pass * kQuads + thread / kGroups, i, arguments.paired);
            loaded[pass][i] = token < mine ? __ldcs(x + token * arguments.x_ld) : uint4{};
            rstd[pass][i] = normalises && token < mine ? __ldg(arguments.rstd + first_token + token) : 1.0f;
        }

    float largest = 0;
    uint2* rows = arguments.rows + first_token * arguments.rows_ld + first_column / 8 + group;
    const int to_rows = arguments.rows != nullptr ? mine : 0;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
        const int quad = pass * kQuads + thread / kGroups;
        std::uint32_t codes[4][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            Eight v = unpack(loaded[pass][i]);
#pragma unroll
            for (float& value : v.value) {
                value *= rstd[pass][i];
                largest = fmaxf(largest, fabsf(value));
                value *= scale;
            }
            codes[i][0] = round_to_f8x4<kFormat>(v.value);
            codes[i][1] = round_to_f8x4<kFormat>(v.value + 4);
            const int token = token_of(quad, i, arguments.paired);
            if (token < to_rows) rows[token * arguments.rows_ld] = {codes[i][0], codes[i][1]};
        }
        auto* words = reinterpret_cast<std::uint32_t*>(tile) + 8 * group * (4 * kVectors) + (quad ^ (2 * group));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint4 of_columns = transpose_bytes(codes[0][half], codes[1][half], codes[2][half], codes[3][half]);
            words[(4 * half + 0) * (4 * kVectors)] = of_columns.x;
            words[(4 * half + 1) * (4 * kVectors)] = of_columns.y;
            words[(4 * half + 2) * (4 * kVectors)] = of_columns.z;
            words[(4 * half + 3) * (4 * kVectors)] = of_columns.w;
        }
    }
    largest = warp_largest(largest);
    if (thread % 32 == 0) largest_of_warp[thread / 32] = largest;
    __syncthreads();
    if (arguments.columns != nullptr) {
        const int vector = thread % kVectors;
        uint4* to = arguments.columns + first_column * arguments.columns_ld + first_token / 16 + vector;
#pragma unroll
        for (int i = 0; i < kColumns * kVectors / kThreads; ++i) {
            const int column = (i * kThreads + thread) / kVectors;
            const uint4 found = tile[column * kVectors + (vector ^ column / 16)];
            const bool swapped = column / 8 % 2 == 1;
            if (column < columns && 16 * vector < tokens)
                to[column * arguments.columns_ld] = swapped ? uint4{found.z, found.w, found.x, found.y} : found;
        }
    }
    if (arguments.amax == nullptr || thread >= 32) return;
    largest = warp_largest(thread < kWarps ? largest_of_warp[thread] : 0.0f);
    if (thread == 0) raise_magnitude(arguments.amax, largest);
}

}  // namespace

template <>
Launch bind(const QuantiseF8& op, const Plan&, const Memory& memory) {
    require_shape(op);
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t tokens = op.x.rows, width = op.x.cols;
    QuantiseArguments arguments{};
    arguments.x = reinterpret_cast<const uint4*>(operands.get_vectors("x", op.x, tokens, width));
    if (op.rstd) arguments.rstd = operands.get<float>("rstd", op.rstd, 1, tokens);
    arguments.scale = operands.get<float>("scale", op.codes.scale, 1, 1);
    with_f8(op.format(), [&]<class F8>(F8) {
        if (op.codes.rows)
            arguments.rows = reinterpret_cast<uint2*>(operands.get_vectors<F8>("rows", op.codes.rows, tokens, width));
        if (!op.codes.columns) return;
        View columns = op.codes.columns;
        columns.order = ColumnOrder::natural;  // the kernel writes both
        arguments.columns = reinterpret_cast<uint4*>(operands.get_vectors<F8>("columns", columns, width, tokens));
    });
    if (op.codes.amax) arguments.amax = operands.get<float>("amax", op.codes.amax, 1, 1);
    arguments.tokens = tokens;
    arguments.width = width;
    arguments.x_ld = op.x.ld / 8;
    arguments.rows_ld = op.codes.rows.ld / 8;
    arguments.columns_ld = op.codes.columns.ld / 16;
    arguments.paired = op.codes.columns.order == ColumnOrder::paired;
    const std::int64_t column_tiles = ceil_div(width, std::int64_t{kColumns});
    const std::int64_t tiles = ceil_div(tokens, std::int64_t{kTokens}) * column_tiles;
    limits::require_none(op.name, limits::tiles_problem("x", tiles));
    arguments.column_tiles = static_cast<unsigned>(column_tiles);
    const auto kernel = op.format() == DType::f8e5m2 ? quantise_f8<DType::f8e5m2> : quantise_f8<DType::f8e4m3>;
    return [=](Stream stream) {
        kernel<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const QuantiseF8& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
