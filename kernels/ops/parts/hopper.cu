// reduce_parts - out = parts[0] ∘ parts[1] ∘ ..., ∘ the sum or the larger one
//
//   parts (N, n) fp32, out (n) fp32
//
// A thread takes four neighbouring columns, 16 bytes of each row, or one column where rows are no whole vectors: losses
// and largest magnitudes, which are few. It adds the rows in their order.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/parts/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

template <bool kSum>
__device__ float combined(float a, float b) {
    if constexpr (kSum)
        return a + b;
    else
        return b > a || isnan(b) ? b : a;
}
template <bool kSum>
__device__ float4 combined(const float4& a, const float4& b) {
    return {combined<kSum>(a.x, b.x), combined<kSum>(a.y, b.y), combined<kSum>(a.z, b.z), combined<kSum>(a.w, b.w)};
}

template <class T, bool kSum>
__global__ __launch_bounds__(kThreads) void reduce_parts(const T* parts, std::int64_t rows, std::int64_t ld,
                                                         std::int64_t count, T* result) {
    const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (at >= count) return;
    T value = __ldcs(parts + at);
#pragma unroll 4
    for (std::int64_t row = 1; row < rows; ++row) value = combined<kSum>(value, __ldcs(parts + row * ld + at));
    result[at] = value;
}

template <class T>
Launch launch_of(const ReduceParts& op, const float* parts, float* result) {
    constexpr std::int64_t kWidth = sizeof(T) / sizeof(float);
    const std::int64_t rows = op.parts.rows, ld = op.parts.ld / kWidth, count = op.parts.cols / kWidth;
    const bool sum = op.how == ReduceParts::How::sum;
    const auto* from = reinterpret_cast<const T*>(parts);
    auto* to = reinterpret_cast<T*>(result);
    return [=](Stream stream) {
        const auto blocks = static_cast<unsigned>(ceil_div(count, std::int64_t{kThreads}));
        if (sum)
            reduce_parts<T, true><<<blocks, kThreads, 0, stream>>>(from, rows, ld, count, to);
        else
            reduce_parts<T, false><<<blocks, kThreads, 0, stream>>>(from, rows, ld, count, to);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace

template <>
Launch bind(const ReduceParts& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t count = op.parts.cols;
    const float* parts = operands.get<float>("parts", op.parts, op.parts.rows, count);
    float* result = operands.get<float>("out", op.out, 1, count);
    const auto aligned = [](const float* first) { return reinterpret_cast<std::uintptr_t>(first) % 16 == 0; };
    const bool vectors = count % 4 == 0 && op.parts.ld % 4 == 0 && aligned(parts) && aligned(result);
    return vectors ? launch_of<float4>(op, parts, result) : launch_of<float>(op, parts, result);
}

template <>
Plan choose(const ReduceParts& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
