// store_key_value - keys and values of a prefill into a sequence's cache
//
//   keys[(s Hk + h) C + first + m] = key h of row m, values likewise, m < count      all bf16
//   place = {s, first, count}, read on the device: one graph serves every sequence and length
//
// A thread moves 16 bytes; neighbours read neighbouring vectors of a row of qkv. hd must be a multiple of 8.
#include <cuda_runtime.h>

#include "kernels/core/cache_shape.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/key_value_cache/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

struct StoreArguments {
    const uint4* qkv;
    const std::int32_t* place;
    uint4 *keys, *values;
    std::int64_t rows, qkv_ld, cache_ld;  // ld in vectors
    std::int64_t sequences, context;
    int kv_heads, head_vectors, first_key;  // first_key: the vector of a row of qkv where the keys begin
};

__global__ __launch_bounds__(kThreads) void store_key_value(StoreArguments arguments) {
    const int half = arguments.kv_heads * arguments.head_vectors;  // vectors of the keys of a row
    const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    const std::int64_t m = i / (2 * half);
    const std::int64_t sequence = arguments.place[0], position = arguments.place[1] + m;
    // The host checks the place before it uploads it; all the same, nothing is written outside the cache.
    if (m >= min(static_cast<std::int64_t>(arguments.place[2]), arguments.rows)) return;
    if (sequence < 0 || sequence >= arguments.sequences || position < 0 || position >= arguments.context) return;
    const int vector = static_cast<int>(i % (2 * half));
    const int head = vector % half / arguments.head_vectors, in_head = vector % arguments.head_vectors;
    const std::int64_t row = (sequence * arguments.kv_heads + head) * arguments.context + position;
    uint4* to = vector < half ? arguments.keys : arguments.values;
    to[row * arguments.cache_ld + in_head] =
        __ldcs(arguments.qkv + m * arguments.qkv_ld + arguments.first_key + vector);
}

}  // namespace

template <>
Launch bind(const StoreKeyValue& op, const Plan&, const Memory& memory) {
    const CacheShape shape = cache_shape(op);
    require(shape.head_dim % limits::kWidthMultiple == 0, op.name, ": head_dim ", shape.head_dim,
            " is not a multiple of ", limits::kWidthMultiple);
    require(op.keys.rows == 1 || op.keys.ld == op.values.ld, op.name, ": rows of keys and values are ", op.keys.ld,
            " and ", op.values.ld, " elements apart");
    const PointwiseOperands operands(op.name, memory);
    const auto vectors = [&](const char* name, const View& view) {
        return reinterpret_cast<uint4*>(operands.get_vectors(name, view, view.rows, view.cols));
    };
    const StoreArguments arguments{.qkv = vectors("qkv", op.qkv),
                                   .place = operands.get<std::int32_t>("place", op.place, 1, 3),
                                   .keys = vectors("keys", op.keys),
                                   .values = vectors("values", op.values),
                                   .rows = shape.rows,
                                   .qkv_ld = op.qkv.ld / 8,
                                   .cache_ld = op.keys.ld / 8,
                                   .sequences = shape.sequences,
                                   .context = shape.context,
                                   .kv_heads = static_cast<int>(shape.kv_heads),
                                   .head_vectors = static_cast<int>(shape.head_dim / 8),
                                   .first_key = static_cast<int>(shape.key_column(0) / 8)};
    const std::int64_t moved = shape.rows * 2 * shape.kv_heads * (shape.head_dim / 8);
    const auto blocks = static_cast<unsigned>(ceil_div(moved, std::int64_t{kThreads}));
    return [=](Stream stream) {
        store_key_value<<<blocks, kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const StoreKeyValue& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
