// exact_cross_entropy - loss and gradient of the flagged rows, from logits computed again in fp32
//
//   l     = rstd Σ_k a table                         (M, vocab), a (M, K), table (vocab, K) bf16
//   q     = exp(l - max) / Σ                         over the columns but the target's
//   loss  = log(1 + e^x), x = max + log Σ - l_t      (M) fp32;  scale = 1 / (1 + e^-x)
//   exponentials = q, -1 for the target, 0 beyond the vocabulary      (M, V) bf16
//   dot   = scale Σ_v l g of the stored g            (M) fp32
//
// Four kernels: `collect` lists the flagged rows in order; `measure` has max and Σ of each row and slice of columns;
// `store` computes the same logits again, the same bits, and writes the gradient; `finish` adds the slices in their
// order. Each one leaves at once where the list is empty, so a usual step pays four launches and one read of flags and
// targets.
//
// A block takes 32 rows of the list and a slice of the columns, 128 at a time: 256 threads with 4 x 4 logits each, from
// tiles of 32 k in shared memory. Sums over 32 k are added to the logit one after the other. The tile of logits then
// goes through shared memory, so that a warp has whole rows, and a lane four neighbouring columns.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/exact_scratch.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::hopper {

namespace {

constexpr int kRows = 32, kColumns = 128, kDepth = 32;
constexpr int kWarps = 8, kThreads = 32 * kWarps, kRowsOfWarp = kRows / kWarps;
constexpr int kSlices = static_cast<int>(ExactScratch::kSlices);
constexpr int kBlocks = 2 * kMultiprocessors;
constexpr int kCollectThreads = 1024, kFinishBlocks = 64;
static_assert(kSlices == 32, "a lane combines a slice");

struct ExactArguments {
    const uint4* a;      // (M, vectors)
    const uint4* table;  // (vocab, vectors)
    std::int64_t a_ld, table_ld;
    const float* rstd;  // (M), may be null
    const std::int32_t* targets;
    const std::int32_t* flags;
    std::uint16_t* exponentials;  // (M, columns) bf16, null without a backward pass; then scale and dot are null too
    std::int64_t exponentials_ld;
    float* scale;
    float* dot;
    float* loss;
    std::int32_t* list;   // how many rows, and which
    float* target_logit;  // by position in the list, as the next two
    float2* largest;      // (kSlices, M)
    double2* sums;        // (kSlices, M)
    std::int64_t rows;
    int vectors, vocab, columns;
};

/// A warp takes neighbouring rows, and each lane takes every 32nd of them, so that loads are coalesced.
__global__ __launch_bounds__(kCollectThreads) void collect(ExactArguments arguments) {
    constexpr int kCollectWarps = kCollectThreads / 32;
    __shared__ int counts[kCollectWarps];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const std::int64_t share = (arguments.rows + kCollectThreads - 1) / kCollectThreads * 32, first = share * warp;
    const std::int64_t last = min(first + share, arguments.rows);
    // A bit for each of the 32 rows from `row` on, in all lanes.
    const auto flagged = [&](std::int64_t row) {
        const std::int64_t own = row + lane;
        const bool inside = own < last;
        const std::int32_t flag = inside ? arguments.flags[own] : 0, target = inside ? arguments.targets[own] : -1;
        return __ballot_sync(kAllLanes, flag != 0 && target >= 0);
    };
    int count = 0;
#pragma unroll 8
    for (std::int64_t row = first; row < last; row += 32) count += __popc(flagged(row));
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    int position = 0;
    for (int other = 0; other < warp; ++other) position += counts[other];
    if (threadIdx.x == kCollectThreads - 1) arguments.list[0] = position + count;
    if (count == 0) return;
    for (std::int64_t row = first; row < last; row += 32) {
        const unsigned rows = flagged(row);
        if ((rows >> lane & 1) != 0)
            arguments.list[1 + position + __popc(rows & ((1U << lane) - 1))] = static_cast<std::int32_t>(row + lane);
        position += __popc(rows);
    }
}

/// What a block works on. Rows are padded by 4 elements: the 16 bytes that a quarter of a warp reads of neighbouring
/// rows lie in different banks.
struct Shared {
    float a[kRows][kDepth + 4];
    float table[kColumns][kDepth + 4];
    float logits[kRows][kColumns + 4];
    float rstd[kRows];
    std::int32_t row[kRows], target[kRows];  // row -1 past the end of the list
};

/// An item of work: 32 positions of the list, and the tiles of a slice.
struct Item {
    int position, slice, first_tile, last_tile;
};

__device__ Item item_of(const ExactArguments& arguments, int index) {
    const int tiles = (arguments.columns + kColumns - 1) / kColumns, slice = index % kSlices;
    return {index / kSlices * kRows, slice, static_cast<int>(std::int64_t{slice} * tiles / kSlices),
            static_cast<int>(std::int64_t{slice + 1} * tiles / kSlices)};
}

__device__ void begin_item(const ExactArguments& arguments, const Item& item, int count, Shared& shared) {
    __syncthreads();  // the item before is done with shared memory
    if (threadIdx.x < kRows) {
        const int position = item.position + static_cast<int>(threadIdx.x);
        const std::int32_t row = position < count ? arguments.list[1 + position] : -1;
        shared.row[threadIdx.x] = row;
        shared.target[threadIdx.x] = row < 0 ? -1 : arguments.targets[row];
        shared.rstd[threadIdx.x] = row < 0 || arguments.rstd == nullptr ? 1.0f : arguments.rstd[row];
    }
    __syncthreads();
}

__device__ void put(float* to, const uint4& bits) {
    const Eight values = unpack(bits);
    reinterpret_cast<float4*>(to)[0] = {values.value[0], values.value[1], values.value[2], values.value[3]};
    reinterpret_cast<float4*>(to)[1] = {values.value[4], values.value[5], values.value[6], values.value[7]};
}

/// The operands' next 32 k on their way: a row's part is four accesses of 16 bytes, and a thread has one of `a` (the
/// first 128 threads) and two of the table.
struct Fetched {
    uint4 a, table[2];

    __device__ void fetch(const ExactArguments& arguments, const Shared& shared, int column, int vector) {
        const int part = static_cast<int>(threadIdx.x) % 4, line = static_cast<int>(threadIdx.x) / 4;
        const int at = vector + part;
        const bool inside = at < arguments.vectors;
        a = table[0] = table[1] = uint4{};
        if (line < kRows && inside && shared.row[line] >= 0) a = arguments.a[shared.row[line] * arguments.a_ld + at];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::int64_t v = column + line + i * (kColumns / 2);
            if (v < arguments.vocab && inside) table[i] = __ldg(arguments.table + v * arguments.table_ld + at);
        }
    }
    __device__ void store(Shared& shared) const {
        const int part = static_cast<int>(threadIdx.x) % 4, line = static_cast<int>(threadIdx.x) / 4;
        if (line < kRows) put(&shared.a[line][8 * part], a);
#pragma unroll
        for (int i = 0; i < 2; ++i) put(&shared.table[line + i * (kColumns / 2)][8 * part], table[i]);
    }
};

/// Logits of the item's rows and the 128 columns from `column` on, into shared.logits. Ends with a barrier.
__device__ void multiply(const ExactArguments& arguments, Shared& shared, int column) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int row = warp / 4 * 16 + lane / 8, v = warp % 4 * 32 + lane % 8;  // and 3 more of each: + 4 i, + 8 j
    float logit[4][4] = {};
    Fetched next;
    next.fetch(arguments, shared, column, 0);
    for (int vector = 0; vector < arguments.vectors; vector += kDepth / 8) {
        __syncthreads();
        next.store(shared);
        __syncthreads();
        next.fetch(arguments, shared, column, vector + kDepth / 8);
        float sum[4][4] = {};
#pragma unroll 2
        for (int k = 0; k < kDepth; k += 4) {
            float4 a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = *reinterpret_cast<const float4*>(&shared.a[row + 4 * i][k]);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4 w = *reinterpret_cast<const float4*>(&shared.table[v + 8 * j][k]);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sum[i][j] = fmaf(a[i].x, w.x, sum[i][j]);
                    sum[i][j] = fmaf(a[i].y, w.y, sum[i][j]);
                    sum[i][j] = fmaf(a[i].z, w.z, sum[i][j]);
                    sum[i][j] = fmaf(a[i].w, w.w, sum[i][j]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) logit[i][j] += sum[i][j];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) shared.logits[row + 4 * i][v + 8 * j] = logit[i][j] * shared.rstd[row + 4 * i];
    __syncthreads();
}

/// Σ exp(l - largest) of two disjoint sets of columns. A NaN stays.
__device__ float2 combined(const float2& left, const float2& right) {
    const float largest = fmaxf(left.x, right.x);
    const auto part = [&](const float2& set) { return set.y == 0 ? 0.0f : set.y * expf(set.x - largest); };
    return {largest, part(left) + part(right)};
}

__device__ float2 combined_over_warp(float2 pair) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        pair = combined(pair, {__shfl_xor_sync(kAllLanes, pair.x, apart), __shfl_xor_sync(kAllLanes, pair.y, apart)});
    return pair;
}

__global__ __launch_bounds__(kThreads, 2) void measure(ExactArguments arguments) {
    __shared__ Shared shared;
    const int count = arguments.list[0], items = (count + kRows - 1) / kRows * kSlices;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
        const Item item = item_of(arguments, index);
        begin_item(arguments, item, count, shared);
        float2 seen[kRowsOfWarp];
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) seen[i] = {-INFINITY, 0};
        for (int tile = item.first_tile; tile < item.last_tile; ++tile) {
            multiply(arguments, shared, tile * kColumns);
#pragma unroll
            for (int i = 0; i < kRowsOfWarp; ++i) {
                const int line = warp * kRowsOfWarp + i, position = item.position + line;
                if (position >= count) continue;
                for (int j = 0; j < 4; ++j) {
                    const int column = tile * kColumns + 4 * lane + j;
                    if (column >= arguments.vocab) continue;
                    const float logit = shared.logits[line][4 * lane + j];
                    const bool target = column == shared.target[line];
                    if (target) arguments.target_logit[position] = logit;
                    if (!isfinite(logit))
                        seen[i].y = NAN;
                    else if (!target)
                        seen[i] = combined(seen[i], {logit, 1});
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) {
            const int position = item.position + warp * kRowsOfWarp + i;
            const float2 pair = combined_over_warp(seen[i]);
            if (lane == 0 && position < count) arguments.largest[item.slice * arguments.rows + position] = pair;
        }
    }
}

/// A row's largest logit but the target's, and Σ exp(l - largest), in all lanes of a warp.
__device__ float2 others_of(const ExactArguments& arguments, int position) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return combined_over_warp(arguments.largest[lane * arguments.rows + position]);
}

__global__ __launch_bounds__(kThreads, 2) void store(ExactArguments arguments) {
    __shared__ Shared shared;
    const int count = arguments.list[0], items = (count + kRows - 1) / kRows * kSlices;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
        const Item item = item_of(arguments, index);
        begin_item(arguments, item, count, shared);
        float2 others[kRowsOfWarp] = {};
        float carry[kRowsOfWarp] = {}, target_logit[kRowsOfWarp] = {};
        double2 sums[kRowsOfWarp] = {};
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) {
            const int position = item.position + warp * kRowsOfWarp + i;
            if (position >= count) continue;
            others[i] = others_of(arguments, position);
            target_logit[i] = arguments.target_logit[position];
        }
        for (int tile = item.first_tile; tile < item.last_tile; ++tile) {
            multiply(arguments, shared, tile * kColumns);
#pragma unroll
            for (int i = 0; i < kRowsOfWarp; ++i) {
                const int line = warp * kRowsOfWarp + i;
                if (item.position + line >= count) continue;
                std::uint16_t* to = arguments.exponentials + shared.row[line] * arguments.exponentials_ld;
                for (int j = 0; j < 4; ++j) {
                    const int column = tile * kColumns + 4 * lane + j;
                    if (column >= arguments.columns) continue;
                    std::uint16_t bits = 0;
                    if (column == shared.target[line]) {
                        bits = isnan(others[i].y) ? 0x7fff : 0xbf80;  // -1
                    } else if (column < arguments.vocab) {
                        const float logit = shared.logits[line][4 * lane + j];
                        bits = cross_entropy::round_carrying(expf(logit - others[i].x) / others[i].y, carry[i]);
                        const auto g = static_cast<double>(__uint_as_float(std::uint32_t{bits} << 16));
                        sums[i].x += g;
                        if (bits != 0)
                            sums[i].y += g * (static_cast<double>(logit) - static_cast<double>(target_logit[i]));
                    }
                    to[column] = bits;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) {
            const int position = item.position + warp * kRowsOfWarp + i;
#pragma unroll
            for (int apart = 16; apart > 0; apart /= 2) {
                sums[i].x += __shfl_xor_sync(kAllLanes, sums[i].x, apart);
                sums[i].y += __shfl_xor_sync(kAllLanes, sums[i].y, apart);
            }
            if (lane == 0 && position < count) arguments.sums[item.slice * arguments.rows + position] = sums[i];
        }
    }
}

/// A warp per row.
__global__ __launch_bounds__(kThreads) void finish(ExactArguments arguments) {
    const int count = arguments.list[0], lane = static_cast<int>(threadIdx.x) % 32;
    for (int position = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32); position < count;
         position += kFinishBlocks * kWarps) {
        const float2 others = others_of(arguments, position);
        const auto target = static_cast<double>(arguments.target_logit[position]);
        const cross_entropy::ExactRow exact =
            cross_entropy::exact_row(static_cast<double>(others.x), static_cast<double>(others.y), target);
        const std::int32_t row = arguments.list[1 + position];
        if (lane == 0) arguments.loss[row] = static_cast<float>(exact.loss);
        if (arguments.exponentials == nullptr) continue;
        double2 sums = arguments.sums[lane * arguments.rows + position];
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2) {
            sums.x += __shfl_xor_sync(kAllLanes, sums.x, apart);
            sums.y += __shfl_xor_sync(kAllLanes, sums.y, apart);
        }
        if (lane != 0) continue;
        arguments.scale[row] = static_cast<float>(exact.scale);
        arguments.dot[row] = static_cast<float>(exact.scale * (sums.y + target * (sums.x - 1)));
    }
}

}  // namespace

template <>
Launch bind(const ExactCrossEntropy& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.a.rows, width = op.a.cols, vocab = op.table.rows;
    ExactArguments arguments{};
    arguments.a = reinterpret_cast<const uint4*>(operands.get_vectors("a", op.a, rows, width));
    arguments.table = reinterpret_cast<const uint4*>(operands.get_vectors("table", op.table, vocab, width));
    arguments.a_ld = op.a.ld / 8;
    arguments.table_ld = op.table.ld / 8;
    if (op.rstd) arguments.rstd = operands.get<float>("rstd", op.rstd, 1, rows);
    arguments.targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    arguments.flags = operands.get<std::int32_t>("flags", op.flags, 1, rows);
    if (op.exponentials) {
        require(op.exponentials.cols >= vocab, op.name, ": exponentials have ", op.exponentials.cols,
                " columns, table has ", vocab, " rows");
        arguments.exponentials = reinterpret_cast<std::uint16_t*>(
            operands.get<Bf16>("exponentials", op.exponentials, rows, op.exponentials.cols));
        arguments.exponentials_ld = op.exponentials.ld;
        arguments.scale = operands.get<float>("scale", op.scale, 1, rows);
        arguments.dot = operands.get<float>("dot", op.dot, 1, rows);
    }
    arguments.loss = operands.get<float>("loss", op.loss, 1, rows);
    const ExactScratch scratch(rows, static_cast<bool>(op.exponentials));
    std::byte* first = operands.scratch(op.scratch, scratch.bytes);
    arguments.list = reinterpret_cast<std::int32_t*>(first + scratch.list);
    arguments.target_logit = reinterpret_cast<float*>(first + scratch.target_logit);
    arguments.largest = reinterpret_cast<float2*>(first + scratch.largest);
    arguments.sums = reinterpret_cast<double2*>(first + scratch.sums);
    arguments.rows = rows;
    arguments.vectors = static_cast<int>(width / 8);
    arguments.vocab = static_cast<int>(vocab);
    arguments.columns = static_cast<int>(op.exponentials ? op.exponentials.cols : vocab);
    return [=](Stream stream) {
        collect<<<1, kCollectThreads, 0, stream>>>(arguments);
        measure<<<kBlocks, kThreads, 0, stream>>>(arguments);
        if (arguments.exponentials != nullptr) store<<<kBlocks, kThreads, 0, stream>>>(arguments);
        finish<<<kFinishBlocks, kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const ExactCrossEntropy& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    Plan plan;
    plan.scratch_bytes = op.scratch_bytes();
    return plan;
}

}  // namespace coda::hopper
