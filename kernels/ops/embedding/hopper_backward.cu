// embed_backward - grad[token_m] += dx_m; rows of the same token are added in order of m
//
//   tokens (M) i32, dx (M, d) bf16, grad (V, d) fp32; only rows of grad whose token occurs are read and written
//
// Kernels    group_tokens: one cluster sorts (token, row), lists where each token's group starts, and which are heavy.
//            add_rows: blocks take heavy groups, 64 columns at a time, then warps take light ones, 256 columns at a
//            time. A column's sum is one chain of fp32 additions in order of m, whichever warp adds it. (A counter that
//            hands out units is slower: one atomic per unit, all on one word, takes longer than the unit.)
// Heavy      All threads copy 64 rows of 128 bytes per stage to shared memory, ahead of the first warp, which adds. So
//            a token with thousands of rows occupies columns / 64 blocks, each with a deep queue of loads.
// Parts      2^20 rows at a time, one part after the other: a column's sum continues where the previous part left it.
// Limits     d a multiple of 8.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/core/operand_check.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/sm90/device.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/embedding/op.h"
#include "kernels/ops/embedding/token_groups.cuh"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChunks = 2, kChunk = 128, kLightColumns = kChunks * kChunk;  // of a warp
constexpr int kBatch = 4;                                                   // rows that a warp fetches at once
constexpr int kHeavyColumns = 64, kStageRows = 64, kStages = 3;

struct AddArguments {
    const Bf16* dx;
    float* grad;
    std::int64_t grad_ld;
    unsigned dx_row_bytes;
    int width;
    GroupCounters* counters;
    const int2* sorted;  // (token, row)
    const int* starts;
    const int* heavy;
};

__device__ void add_to(float4& sum, const uint2& bits) {
    sum.x += __uint_as_float(bits.x << 16);
    sum.y += __uint_as_float(bits.x & 0xffff0000u);
    sum.z += __uint_as_float(bits.y << 16);
    sum.w += __uint_as_float(bits.y & 0xffff0000u);
}

/// A lane's columns of a light group: four in each of kChunks runs of kChunk.
struct LightSum {
    float4 chunk[kChunks];
};

/// Adds kRows rows, all fetched before the first is added. Lanes from `first` on hold their row numbers.
template <int kRows, class Inside>
__device__ void add_batch(LightSum& sum, const std::byte* dx, unsigned row_bytes, int rows, int first,
                          const Inside& inside) {
    uint2 bits[kRows][kChunks];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        const auto row = static_cast<unsigned>(__shfl_sync(kAllLanes, rows, first + i));
        const auto* from = reinterpret_cast<const uint2*>(dx + std::uint64_t{row} * row_bytes);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk)
            if (inside(chunk)) bits[i][chunk] = __ldcs(from + chunk * kChunk / 4);
    }
    __syncwarp();  // NOTE: keeps the compiler from fetching one row at a time, between additions.
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk)
            if (inside(chunk)) add_to(sum.chunk[chunk], bits[i][chunk]);
}

/// One warp: kLightColumns columns of a group. kWhole: the width is a multiple of them.
template <bool kWhole>
__device__ void add_light(const AddArguments& arguments, int group, int stripe) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int begin = __ldg(arguments.starts + group), count = __ldg(arguments.starts + group + 1) - begin;
    if (count > kLightRows) return;
    const int column = stripe * kLightColumns + 4 * lane;
    const auto inside = [&](int chunk) { return kWhole || column + chunk * kChunk < arguments.width; };
    const int2 pair = __ldg(arguments.sorted + begin + min(lane, count - 1));
    auto* to = reinterpret_cast<float4*>(arguments.grad + pair.x * arguments.grad_ld + column);
    const auto* dx = reinterpret_cast<const std::byte*>(arguments.dx + column);
    LightSum sum;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
        if (inside(chunk)) sum.chunk[chunk] = to[chunk * kChunk / 4];
    const auto add = [&]<int kRows>(std::integral_constant<int, kRows>, int first) {
        add_batch<kRows>(sum, dx, arguments.dx_row_bytes, pair.y, first, inside);
    };
    int first = 0;
    for (; first + kBatch <= count; first += kBatch) add(std::integral_constant<int, kBatch>(), first);
    switch (count - first) {
        case 3: add(std::integral_constant<int, 3>(), first); break;
        case 2: add(std::integral_constant<int, 2>(), first); break;
        case 1: add(std::integral_constant<int, 1>(), first); break;
        default: break;
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
        if (inside(chunk)) to[chunk * kChunk / 4] = sum.chunk[chunk];
}

struct HeavyStage {
    uint4 rows[kStageRows][kHeavyColumns / 8];
};

/// The whole block: 64 columns of a heavy group.
__device__ void add_heavy(const AddArguments& arguments, HeavyStage* stages, int group, int stripe) {
    constexpr int kVectors = kHeavyColumns / 8, kRowsApart = kThreads / kVectors, kCopies = kStageRows / kRowsApart;
    const int thread = static_cast<int>(threadIdx.x);
    const int begin = arguments.starts[group], count = arguments.starts[group + 1] - begin;
    const int steps = (count + kStageRows - 1) / kStageRows;
    const int own_row = thread / kVectors, own_vector = thread % kVectors;
    const bool inside = stripe * kHeavyColumns + 8 * own_vector < arguments.width;
    const auto* dx = reinterpret_cast<const std::byte*>(arguments.dx + stripe * kHeavyColumns + 8 * own_vector);
    int rows[kCopies];  // of the next step, read ahead of its copies
    const auto find_rows = [&](int step) {
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
            const int at = step * kStageRows + own_row + i * kRowsApart;
            rows[i] = at < count && inside ? __ldg(arguments.sorted + begin + at).y : -1;
        }
    };
    const auto fetch = [&](int step) {
#pragma unroll
        for (int i = 0; i < kCopies; ++i)
            if (rows[i] >= 0)
                __pipeline_memcpy_async(&stages[step % kStages].rows[own_row + i * kRowsApart][own_vector],
                                        dx + std::uint64_t{static_cast<unsigned>(rows[i])} * arguments.dx_row_bytes,
                                        sizeof(uint4));
        __pipeline_commit();
        find_rows(step + 1);
    };

    const int token = arguments.sorted[begin].x, column = stripe * kHeavyColumns + 2 * thread;
    auto* to = reinterpret_cast<float2*>(arguments.grad + token * arguments.grad_ld + column);
    const bool adds = thread < 32 && column < arguments.width;
    float2 sum = adds ? *to : float2{};
    find_rows(0);
    for (int step = 0; step < kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        __pipeline_wait_prior(kStages - 2);
        __syncthreads();  // this step's rows are here, and the stage before it has been added
        fetch(step + kStages - 1);
        if (!adds) continue;
        const auto* words = reinterpret_cast<const unsigned*>(stages[step % kStages].rows) + thread;
        const int number = min(kStageRows, count - step * kStageRows);
#pragma unroll 16
        for (int i = 0; i < number; ++i) {
            const unsigned pair = words[i * kHeavyColumns / 2];
            sum.x += __uint_as_float(pair << 16);
            sum.y += __uint_as_float(pair & 0xffff0000u);
        }
    }
    if (adds) *to = sum;
    __pipeline_wait_prior(0);
    __syncthreads();
}

template <bool kWhole>
__global__ __launch_bounds__(kThreads) void add_rows(AddArguments arguments) {
    __shared__ HeavyStage stages[kStages];
    const int groups = arguments.counters->groups, heavy = arguments.counters->heavy;
    const int heavy_stripes = (arguments.width + kHeavyColumns - 1) / kHeavyColumns;
    for (int unit = static_cast<int>(blockIdx.x); unit < heavy * heavy_stripes; unit += static_cast<int>(gridDim.x))
        add_heavy(arguments, stages, arguments.heavy[unit / heavy_stripes], unit % heavy_stripes);

    const int stripes = (arguments.width + kLightColumns - 1) / kLightColumns;
    const int units = groups * stripes;
    const int warps = static_cast<int>(gridDim.x) * kWarps;
    for (int unit = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32); unit < units; unit += warps)
        add_light<kWhole>(arguments, unit / stripes, unit % stripes);
}

unsigned resident_blocks(void (*kernel)(AddArguments)) {
    int per_processor = 0;
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, kThreads, 0));
    return static_cast<unsigned>(multiprocessors() * per_processor);
}

struct EmbedBackwardArguments {
    GroupArguments group;
    AddArguments add;
};

/// The arguments for at most token_groups::kMaxRows rows.
EmbedBackwardArguments arguments_of_part(const EmbedBackward& op, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.tokens.cols, width = op.dx.cols;
    std::byte* scratch = operands.scratch(op.scratch, op.scratch_bytes());

    const auto bits = std::bit_width(static_cast<std::uint64_t>(op.grad.rows - 1));
    const std::int64_t pair_bytes = round_up(rows * static_cast<std::int64_t>(sizeof(int2)), 256);
    EmbedBackwardArguments arguments{};
    GroupArguments& group = arguments.group;
    group.tokens = operands.get<std::int32_t>("tokens", op.tokens, 1, rows);
    group.rows = static_cast<int>(rows);
    group.passes = std::max(1, static_cast<int>(ceil_div(bits, token_groups::kBits)));
    group.counters = reinterpret_cast<GroupCounters*>(scratch);
    for (int i = 0; i < 2; ++i) group.pairs[i] = reinterpret_cast<int2*>(scratch + 256 + i * pair_bytes);
    group.starts = reinterpret_cast<int*>(group.pairs[group.passes % 2]);
    group.heavy = group.starts + rows + 1;

    AddArguments& add = arguments.add;
    add.dx = operands.get_vectors("dx", op.dx, rows, width);
    add.grad = operands.get_vectors<float>("grad", op.grad, op.grad.rows, width);
    add.dx_row_bytes = static_cast<unsigned>(op.dx.ld * size_of(DType::bf16));
    add.grad_ld = op.grad.ld;
    add.width = static_cast<int>(width);
    add.counters = group.counters;
    add.sorted = group.pairs[(group.passes - 1) % 2];
    add.starts = group.starts;
    add.heavy = group.heavy;
    return arguments;
}

/// The arguments of every part of the rows, in order.
std::vector<EmbedBackwardArguments> arguments_of(const EmbedBackward& op, const Memory& memory) {
    limits::require_none(op.name, limits::tokens_problem("tokens", op.tokens.cols));
    require_operand(op.name, "dx", op.dx, op.tokens.cols, op.dx.cols, DType::bf16);
    std::vector<EmbedBackwardArguments> parts;
    for (std::int64_t first = 0; first < op.tokens.cols; first += token_groups::kMaxRows) {
        EmbedBackward part = op;
        const std::int64_t rows = std::min<std::int64_t>(token_groups::kMaxRows, op.tokens.cols - first);
        part.tokens.offset += first * size_of(op.tokens.dtype);
        part.tokens.cols = part.tokens.ld = rows;
        part.dx = op.dx.row_slice(first, rows);
        parts.push_back(arguments_of_part(part, memory));
    }
    return parts;
}

}  // namespace

template <>
Plan choose(const EmbedBackward& op, const Request&) {
    arguments_of(op, Memory::shapes_only());
    Plan plan;
    plan.scratch_bytes = op.scratch_bytes();
    return plan;
}

template <>
Launch bind(const EmbedBackward& op, const Plan&, const Memory& memory) {
    const std::vector<EmbedBackwardArguments> parts = arguments_of(op, memory);
    CUDA_CHECK(
        cudaFuncSetAttribute(group_tokens, cudaFuncAttributeMaxDynamicSharedMemorySize, token_groups::kSharedBytes));
    const auto kernel = op.dx.cols % kLightColumns == 0 ? add_rows<true> : add_rows<false>;
    const unsigned blocks = resident_blocks(kernel);
    return [parts, kernel, blocks](Stream stream) {
        for (const auto& [group, add] : parts) {
            group_tokens<<<token_groups::kBlocks, token_groups::kThreads, token_groups::kSharedBytes, stream>>>(group);
            CUDA_CHECK(cudaGetLastError());
            kernel<<<blocks, kThreads, 0, stream>>>(add);
            CUDA_CHECK(cudaGetLastError());
        }
    };
}

}  // namespace coda::hopper
