// decode_attention - the newest tokens of sequences against their caches
//
//   n = lengths[m];  k, v of row m of qkv become position n - 1 of its sequence's cache
//   o = softmax(q kᵀ / sqrt(hd)) v over positions [0, n), per query head      bf16, sums in fp32
//       with a window of W, over [max(0, n - W), n)
//
// A block of four warps takes kSplit positions of one key/value head of one row, with all query heads that read it:
// logits, their maximum m and e = exp(logit - m), and Σ e v, which goes to scratch with m and Σ e. Then a block per
// query head adds the parts in order: part i weighs exp(m_i - max m). A part, and so every sum, depends only on the
// row's own length. Keys and values of this call's rows are read from qkv, since the blocks that store them run at the
// same time; the block whose part ends with a row's own stores it.
//
// lengths are read on the device, so one graph serves every length: blocks beyond a row's end leave at once.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <numbers>

#include "kernels/core/cache_shape.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/ops/key_value_cache/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kSplit = static_cast<int>(DecodeAttention::kSplit);

struct AttendArguments {
    const uint4* qkv;
    const std::int32_t* lengths;
    uint4 *keys, *values;
    __nv_bfloat16* o;
    float* parts;                           // per row, query head and part: hd sums, maximum, Σ e
    std::int64_t qkv_ld, key_ld, value_ld;  // in vectors
    std::int64_t o_ld;                      // in elements
    std::int64_t context;
    int heads, kv_heads, splits, rows_each;
    float scale;  // log2(e) / sqrt(hd): exponents are of 2
    int window;   // positions, with kWindow
};

__device__ int length_of(const AttendArguments& arguments, int row) {
    return static_cast<int>(min(static_cast<std::int64_t>(arguments.lengths[row]), arguments.context));
}

/// The first position that a token of a sequence of this length sees.
template <bool kWindow>
__device__ int first_of(const AttendArguments& arguments, int length) {
    return kWindow ? max(0, length - arguments.window) : 0;
}

template <int kHeadDim>
__device__ float* part_of(const AttendArguments& arguments, int row, int head, int split) {
    const std::int64_t index = (std::int64_t{row} * arguments.heads + head) * arguments.splits + split;
    return arguments.parts + index * (kHeadDim + 2);
}

__device__ float dot(const Eight& a, const float* b) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += a.value[j] * b[j];
    return sum;
}

/// A head's keys or values of a part: from the cache, but the newest and `earlier` ones before it from qkv.
struct PartRows {
    const uint4 *cache, *newest;
    std::int64_t ld, newest_ld;
    int newest_row, earlier;

    __device__ Eight load(int row, int vector) const {
        const int before = newest_row - row;
        return unpack(before <= earlier ? newest[vector - before * newest_ld] : __ldcs(cache + row * ld + vector));
    }
};

/// Shared memory of a block, in floats: stripes of Σ e v, then queries and logits of every query head.
template <int kHeadDim>
struct PartMemory {
    static constexpr int kVectors = kHeadDim / 8, kStripes = kThreads / kVectors;
    static constexpr int bytes(int group) {
        return static_cast<int>(sizeof(float)) * (kStripes * kHeadDim + group * (kHeadDim + kSplit));
    }
};

/// Replaces a query head's logits by e = exp2(logit - maximum); maximum and Σ e to `statistics`. One warp.
__device__ void exponentials(float* logits, int count, float* statistics) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    float largest = -INFINITY;
    for (int p = lane; p < count; p += 32) largest = fmaxf(largest, logits[p]);
    largest = warp_max(largest);
    float sum = 0;
    for (int p = lane; p < count; p += 32) {
        logits[p] = exp2f(logits[p] - largest);
        sum += logits[p];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        statistics[0] = largest;
        statistics[1] = sum;
    }
}

/// Grid (splits, Hk, M).
template <int kHeadDim, bool kWindow>
__global__ __launch_bounds__(kThreads) void attend_part(AttendArguments arguments) {
    using Shared = PartMemory<kHeadDim>;
    constexpr int kVectors = Shared::kVectors, kStripes = Shared::kStripes;
    const int split = static_cast<int>(blockIdx.x), kv = static_cast<int>(blockIdx.y);
    const int row = static_cast<int>(blockIdx.z), thread = static_cast<int>(threadIdx.x);
    const int length = length_of(arguments, row), first = split * kSplit;
    const int hidden = first_of<kWindow>(arguments, length) - first;  // of this part, where it is above 0
    if (first >= length || (kWindow && hidden >= kSplit)) return;
    const int count = min(kSplit, length - first), group = arguments.heads / arguments.kv_heads;

    extern __shared__ float shared[];
    float* stripes = shared;
    float* query = stripes + kStripes * kHeadDim;
    float* logits = query + group * kHeadDim;

    const int sequence = row / arguments.rows_each, earlier = row % arguments.rows_each;
    const uint4* heads = arguments.qkv + row * arguments.qkv_ld;
    const uint4* new_key = heads + (arguments.heads + kv) * kVectors;
    const uint4* new_value = new_key + arguments.kv_heads * kVectors;
    const std::int64_t cache_row = (std::int64_t{sequence} * arguments.kv_heads + kv) * arguments.context + first;
    uint4* key_cache = arguments.keys + cache_row * arguments.key_ld;
    uint4* value_cache = arguments.values + cache_row * arguments.value_ld;
    const int newest = length - 1 - first;  // of this part, where it is below kSplit
    if (newest < kSplit && thread < kVectors) {
        key_cache[newest * arguments.key_ld + thread] = new_key[thread];
        value_cache[newest * arguments.value_ld + thread] = new_value[thread];
    }
    for (int i = thread; i < group * kVectors; i += kThreads) {
        const Eight eight = unpack(heads[kv * group * kVectors + i]);
#pragma unroll
        for (int j = 0; j < 8; ++j) query[8 * i + j] = eight.value[j] * arguments.scale;
    }
    __syncthreads();

    const int vector = thread % kVectors, stripe = thread / kVectors;
    const PartRows keys{key_cache, new_key, arguments.key_ld, arguments.qkv_ld, newest, earlier};
    for (int base = 0; base < count; base += kStripes) {
        const int p = base + stripe;
        const Eight key = keys.load(min(p, count - 1), vector);
        for (int g = 0; g < group; ++g) {
            float logit = dot(key, query + g * kHeadDim + 8 * vector);
            logit = warp_sum<kVectors>(logit);
            if (kWindow && p < hidden) logit = -INFINITY;
            if (vector == 0 && p < count) logits[g * kSplit + p] = logit;
        }
    }
    __syncthreads();
    for (int g = thread / 32; g < group; g += kWarps)
        exponentials(logits + g * kSplit, count, part_of<kHeadDim>(arguments, row, kv * group + g, split) + kHeadDim);
    __syncthreads();

    const PartRows values{value_cache, new_value, arguments.value_ld, arguments.qkv_ld, newest, earlier};
    for (int g = 0; g < group; ++g) {
        float sums[8] = {};
        for (int p = stripe; p < count; p += kStripes) {
            const Eight value = values.load(p, vector);
            const float e = logits[g * kSplit + p];
#pragma unroll
            for (int j = 0; j < 8; ++j) sums[j] += e * value.value[j];
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) stripes[stripe * kHeadDim + 8 * vector + j] = sums[j];
        __syncthreads();
        if (thread < kHeadDim) {
            float sum = 0;
            for (int other = 0; other < kStripes; ++other) sum += stripes[other * kHeadDim + thread];
            part_of<kHeadDim>(arguments, row, kv * group + g, split)[thread] = sum;
        }
        __syncthreads();
    }
}

/// Grid (H, M), a thread per column.
template <int kHeadDim, bool kWindow>
__global__ __launch_bounds__(kHeadDim) void add_parts(AttendArguments arguments) {
    const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
    const int column = static_cast<int>(threadIdx.x);
    const int length = length_of(arguments, row);
    const int parts = (length + kSplit - 1) / kSplit;  // 0 of an idle row
    const int begin = first_of<kWindow>(arguments, length) / kSplit;
    const float* first = part_of<kHeadDim>(arguments, row, head, 0);
    float largest = -INFINITY;
    for (int i = begin; i < parts; ++i) largest = fmaxf(largest, first[i * (kHeadDim + 2) + kHeadDim]);
    float sum = 0, total = 0;
    for (int i = begin; i < parts; ++i) {
        const float* part = first + i * (kHeadDim + 2);
        const float weight = exp2f(part[kHeadDim] - largest);
        sum += weight * part[column];
        total += weight * part[kHeadDim + 1];
    }
    arguments.o[row * arguments.o_ld + head * kHeadDim + column] = __float2bfloat16(parts == 0 ? 0.0f : sum / total);
}

template <int kHeadDim, bool kWindow>
Launch launch_of(const AttendArguments& arguments, const CacheShape& shape) {
    const dim3 parts(static_cast<unsigned>(arguments.splits), static_cast<unsigned>(shape.kv_heads),
                     static_cast<unsigned>(shape.rows));
    const dim3 rows(static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.rows));
    const int bytes = PartMemory<kHeadDim>::bytes(static_cast<int>(shape.group()));
    return [=](Stream stream) {
        attend_part<kHeadDim, kWindow><<<parts, kThreads, bytes, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
        add_parts<kHeadDim, kWindow><<<rows, kHeadDim, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace

template <>
Launch bind(const DecodeAttention& op, const Plan&, const Memory& memory) {
    const CacheShape shape = cache_shape(op);
    limits::require_none(op.name, limits::head_dim_problem("head_dim", shape.head_dim));
    limits::require_none(op.name, limits::group_problem("heads / kv_heads", shape.group()));
    limits::require_none(op.name, limits::context_problem("context", shape.context));
    require(shape.kv_heads <= limits::kMaxGridY && shape.rows <= limits::kMaxGridY, op.name, ": ", shape.kv_heads,
            " key/value heads of ", shape.rows, " rows, and a grid has up to ", limits::kMaxGridY, " each");
    const PointwiseOperands operands(op.name, memory);
    const auto vectors = [&](const char* name, const View& view) {
        return reinterpret_cast<uint4*>(operands.get_vectors(name, view, view.rows, view.cols));
    };
    const AttendArguments arguments{
        .qkv = vectors("qkv", op.qkv),
        .lengths = operands.get<std::int32_t>("lengths", op.lengths, 1, shape.rows),
        .keys = vectors("keys", op.keys),
        .values = vectors("values", op.values),
        .o = reinterpret_cast<__nv_bfloat16*>(operands.get<Bf16>("o", op.o, op.o.rows, op.o.cols)),
        .parts = reinterpret_cast<float*>(operands.scratch(op.scratch, op.scratch_bytes())),
        .qkv_ld = op.qkv.ld / 8,
        .key_ld = op.keys.ld / 8,
        .value_ld = op.values.ld / 8,
        .o_ld = op.o.ld,
        .context = shape.context,
        .heads = static_cast<int>(shape.heads),
        .kv_heads = static_cast<int>(shape.kv_heads),
        .splits = static_cast<int>(ceil_div(shape.context, DecodeAttention::kSplit)),
        .rows_each = static_cast<int>(op.rows_each),
        .scale = static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(shape.head_dim))),
        .window = static_cast<int>(op.most_positions())};
    const bool window = op.most_positions() < op.context;
    if (shape.head_dim == 64)
        return window ? launch_of<64, true>(arguments, shape) : launch_of<64, false>(arguments, shape);
    return window ? launch_of<128, true>(arguments, shape) : launch_of<128, false>(arguments, shape);
}

template <>
Plan choose(const DecodeAttention& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
