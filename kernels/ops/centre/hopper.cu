// centre - each column of a matrix without its mean, and a bias without its own
//
//   out_oj = matrix_oj - (1/N) Σ_o' matrix_o'j     matrix, out (N, K) bf16 or fp32; out may be matrix
//   bias_out_o = bias_o - (1/N) Σ_o' bias_o'       bias, bias_out (N) fp32, optional; bias_out may be bias
//
// Rows of the matrix are multiples of 16 bytes. Bound by memory: it reads and writes the matrix once, where the second
// of its two passes finds the rows in a cache.
//
// A block takes a strip of 64 bytes of columns, and one more block takes the bias, whose elements are the rows of one
// column. The 1024 threads of a block share the rows: a thread loads 16 bytes of every 256th row, or one element of
// every 1024th, and in the second pass it stores what it has loaded itself. That is why out may be matrix. Its sums are
// added over the lanes of its warp that have the same columns, and then warp c adds the sums of all warps for column c:
// one fixed order per shape. A strip of 3072 rows has 192 KiB, less than an SM's L1; the second pass over a longer one
// is for L2, which strips of 4096 rows on 132 SMs fill to two thirds.
//
// NOTE: no __ldg of what the predecessor may have written: the compiler moves such loads above the wait.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/sm90/overlapped_launch.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/centre/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBatch = 4;

template <int kColumns>
struct Columns {
    float value[kColumns];
};

/// Neighbouring columns of a row as one access moves them. kLanes: accesses of a strip.
struct EightBf16 {
    using Element = Bf16;
    using Word = uint4;
    static constexpr int kColumns = 8, kLanes = 4;
    static __device__ Columns<8> unpack(const Word& word) {
        const Eight eight = hopper::unpack(word);
        Columns<8> columns;
#pragma unroll
        for (int j = 0; j < 8; ++j) columns.value[j] = eight.value[j];
        return columns;
    }
    static __device__ Word pack(const Columns<8>& columns) {
        Eight eight;
#pragma unroll
        for (int j = 0; j < 8; ++j) eight.value[j] = columns.value[j];
        return hopper::pack(eight);
    }
};
struct FourF32 {
    using Element = float;
    using Word = float4;
    static constexpr int kColumns = 4, kLanes = 4;
    static __device__ Columns<4> unpack(const Word& word) { return {{word.x, word.y, word.z, word.w}}; }
    static __device__ Word pack(const Columns<4>& columns) {
        return {columns.value[0], columns.value[1], columns.value[2], columns.value[3]};
    }
};
struct OneF32 {
    using Element = float;
    using Word = float;
    static constexpr int kColumns = 1, kLanes = 1;
    static __device__ Columns<1> unpack(Word word) { return {{word}}; }
    static __device__ Word pack(const Columns<1>& column) { return column.value[0]; }
};

/// A matrix, or a bias as a single column.
template <class Unit>
struct Strips {
    using Word = typename Unit::Word;
    const Word* from;
    Word* to;
    std::int64_t rows, words, from_ld, to_ld;  // words of a row, and from one row to the next
};

template <class Unit>
struct CentreArguments {
    Strips<Unit> matrix;
    Strips<OneF32> bias;
    unsigned strips;  // of the matrix; the block after them takes the bias
};

/// Calls visit(row, word) for every kStep-th row from `first` on. The words of a batch are loaded before it is visited.
template <int kStep, class Word, class Visit>
__device__ __forceinline__ void for_each_row(const Word* column, std::int64_t ld, std::int64_t first, std::int64_t rows,
                                             const Visit& visit) {
#pragma unroll 1
    for (std::int64_t row = first; row < rows; row += kStep * kBatch) {
        Word words[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (row + i * kStep < rows) words[i] = column[(row + i * kStep) * ld];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (row + i * kStep < rows) visit(row + i * kStep, words[i]);
    }
}

template <class Unit>
__device__ __forceinline__ void centre_strip(const Strips<Unit>& given, unsigned strip) {
    using Word = typename Unit::Word;
    constexpr int kColumns = Unit::kColumns, kLanes = Unit::kLanes, kStrip = kLanes * kColumns;
    constexpr int kStep = kThreads / kLanes;
    static_assert(kStrip <= kWarps, "a warp adds up a column");
    __shared__ float sums[kWarps][kStrip + 1];  // a column more, so that a warp's reads of a column meet all banks
    __shared__ float means[kStrip];
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % kLanes;
    const std::int64_t word = std::int64_t{strip} * kLanes + lane, first = thread / kLanes;
    const std::int64_t rows = word < given.words ? given.rows : 0;
    Columns<kColumns> sum{};
    for_each_row<kStep>(given.from + word, given.from_ld, first, rows, [&](std::int64_t, const Word& loaded) {
        const Columns<kColumns> columns = Unit::unpack(loaded);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sum.value[j] += columns.value[j];
    });
#pragma unroll
    for (int apart = 16; apart >= kLanes; apart /= 2)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sum.value[j] += __shfl_xor_sync(kAllLanes, sum.value[j], apart);
    if (thread % 32 < kLanes)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[warp][lane * kColumns + j] = sum.value[j];
    __syncthreads();
    if (warp < kStrip) {
        float total = sums[thread % 32][warp];
        total = warp_sum(total);
        if (thread % 32 == 0) means[warp] = total / static_cast<float>(given.rows);
    }
    __syncthreads();
    Columns<kColumns> mean;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) mean.value[j] = means[lane * kColumns + j];
    for_each_row<kStep>(given.from + word, given.from_ld, first, rows, [&](std::int64_t row, const Word& loaded) {
        Columns<kColumns> columns = Unit::unpack(loaded);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) columns.value[j] -= mean.value[j];
        given.to[row * given.to_ld + word] = Unit::pack(columns);
    });
}

template <class Unit>
__global__ __launch_bounds__(kThreads) void centre(const __grid_constant__ CentreArguments<Unit> arguments) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    if (blockIdx.x < arguments.strips)
        centre_strip(arguments.matrix, blockIdx.x);
    else
        centre_strip(arguments.bias, 0);
}

template <class Unit>
Launch launch(const CentreColumns& op, const PointwiseOperands& operands) {
    using Element = typename Unit::Element;
    using Word = typename Unit::Word;
    const std::int64_t rows = op.matrix.rows, columns = op.matrix.cols;
    const auto first = [&](const char* name, const View& view) {
        return reinterpret_cast<Word*>(operands.get_vectors<Element>(name, view, rows, columns));
    };
    CentreArguments<Unit> arguments{};
    arguments.matrix = {.from = first("matrix", op.matrix),
                        .to = first("out", op.out),
                        .rows = rows,
                        .words = columns / Unit::kColumns,
                        .from_ld = op.matrix.ld / Unit::kColumns,
                        .to_ld = op.out.ld / Unit::kColumns};
    const bool with_bias = op.bias || op.bias_out;
    if (with_bias) {
        arguments.bias = {.from = operands.get<float>("bias", op.bias, 1, rows),
                          .to = operands.get<float>("bias_out", op.bias_out, 1, rows),
                          .rows = rows,
                          .words = 1,
                          .from_ld = 1,
                          .to_ld = 1};
    }
    const std::int64_t strips = ceil_div(arguments.matrix.words, std::int64_t{Unit::kLanes});
    limits::require_none(op.name, limits::tiles_problem("matrix", strips));
    arguments.strips = static_cast<unsigned>(strips);
    const unsigned blocks = arguments.strips + (with_bias ? 1 : 0);
    return [=](Stream stream) { launch_overlapped(centre<Unit>, blocks, kThreads, 0, stream, arguments); };
}

}  // namespace

template <>
Launch bind(const CentreColumns& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    require(op.matrix.rows != 1, op.name, ": operand matrix has one row, which is its own mean");
    return op.matrix.dtype == DType::f32 ? launch<FourF32>(op, operands) : launch<EightBf16>(op, operands);
}

template <>
Plan choose(const CentreColumns& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
