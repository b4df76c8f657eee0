// update_scales, invert_products - amax histories to the scales of the next step, and what undoes them in products
// count_f8 - codes at the end of the range and codes of 0
//
//   history[step mod W] = amax;  scales = 2^f8_scale_exponent(largest of history);  amax = 0        fp32, (1, T), (W,
//   T) products = 1 / (scales[left] scales[right])                                                     fp32, (1, P)
//   counts   = (codes at the end of the range, codes of 0) over every `every`-th row                i32, of (M, N)
//   f8
//
// update_scales has a thread per tensor, whose neighbours read neighbouring entries of the history. Pairs are
// parameters of invert_products, in as many launches as their 4 KiB need: one for all models but the largest.
//
// count_f8 is bound by memory: one byte per code. A warp takes a row, 16 bytes per lane. A byte of a word of magnitudes
// (the sign cleared) is not 0 where adding 0x7f sets its highest bit, and at least the largest code c where adding
// 0x80 - c does; no addition carries into the next byte. The bits are added up bytewise over 16 codes, then over the
// bytes.
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/core/f8.h"
#include "kernels/core/integers.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/math/f8_scale.h"
#include "kernels/ops/scales/shape.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;
constexpr int kPairs = 448;  // per launch

struct UpdateArguments {
    float *amax, *history, *scales;
    const std::int32_t *step, *skip;
    std::int64_t history_ld;
    std::int32_t window, tensors;
};
struct ProductArguments {
    const float* scales;
    float* products;  // of the first pair of the launch
    std::int32_t pairs;
    std::int32_t left[kPairs], right[kPairs];
};
static_assert(sizeof(ProductArguments) <= 4096, "the parameters of a launch");

__global__ __launch_bounds__(kThreads) void update_scales(const __grid_constant__ UpdateArguments arguments) {
    const int t = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (t >= arguments.tensors) return;
    const float amax = arguments.amax[t];
    float* history = arguments.history + t;
    const std::int32_t window = arguments.window;
    if (*arguments.skip == 0 && isfinite(amax))
        history[(*arguments.step % window + window) % window * arguments.history_ld] = amax;
    arguments.amax[t] = 0;
    float largest = 0;
    for (std::int32_t row = 0; row < window; ++row) largest = fmaxf(largest, history[row * arguments.history_ld]);
    arguments.scales[t] = ldexpf(1.0f, f8_scale_exponent(largest, UpdateScales::kLargestExponent));
}

__global__ __launch_bounds__(kThreads) void invert_products(const __grid_constant__ ProductArguments arguments) {
    const int p = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (p >= arguments.pairs) return;
    const auto scale = [&](std::int32_t index) {
        return index == kNormalised ? kNormalisedScale : arguments.scales[index];
    };
    arguments.products[p] = 1.0f / (scale(arguments.left[p]) * scale(arguments.right[p]));
}

__device__ __forceinline__ unsigned sum_of_bytes(std::uint32_t word) { return __dp4a(word, 0x01010101u, 0u); }

__global__ __launch_bounds__(kThreads) void count_f8(const uint4* codes, std::int64_t ld, std::int64_t rows,
                                                     std::int64_t vectors, std::uint32_t to_end, std::int32_t* counts) {
    __shared__ unsigned of_block[2];
    if (threadIdx.x < 2) of_block[threadIdx.x] = 0;
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    unsigned ends = 0, zeros = 0;
    for (std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; row < rows;
         row += gridDim.x * kThreads / 32)
#pragma unroll 4
        for (std::int64_t i = lane; i < vectors; i += 32) {
            const uint4 vector = __ldcs(codes + row * ld + i);
            std::uint32_t end_bytes = 0, other_bytes = 0;  // other: not 0
            for (const std::uint32_t word : {vector.x, vector.y, vector.z, vector.w}) {
                const std::uint32_t magnitudes = word & 0x7f7f7f7fu;
                end_bytes += (magnitudes + to_end) >> 7 & 0x01010101u;
                other_bytes += (magnitudes + 0x7f7f7f7fu) >> 7 & 0x01010101u;
            }
            ends += sum_of_bytes(end_bytes);
            zeros += 16 - sum_of_bytes(other_bytes);
        }
    ends = __reduce_add_sync(kAllLanes, ends);
    zeros = __reduce_add_sync(kAllLanes, zeros);
    if (lane == 0) {
        atomicAdd(of_block, ends);
        atomicAdd(of_block + 1, zeros);
    }
    __syncthreads();
    if (threadIdx.x < 2) atomicAdd(counts + threadIdx.x, static_cast<std::int32_t>(of_block[threadIdx.x]));
}

}  // namespace

template <>
Launch bind(const UpdateScales& op, const Plan&, const Memory& memory) {
    require_shape(op);
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t tensors = op.amax.cols, pairs = std::ssize(op.pairs);
    require(op.window() <= 1 << 30, op.name, ": a history of ", op.window(), " steps is longer than 2^30");
    require(tensors <= 1 << 30, op.name, ": ", tensors, " tensors are more than 2^30");
    UpdateArguments update{};
    update.amax = operands.get<float>("amax", op.amax, 1, tensors);
    update.history = operands.get<float>("history", op.history, op.window(), tensors);
    update.scales = operands.get<float>("scales", op.scales, 1, tensors);
    update.step = operands.get<std::int32_t>("step", op.step, 1, 1);
    update.skip = operands.get<std::int32_t>("skip", op.skip, 1, 1);
    update.history_ld = op.history.ld;
    update.window = static_cast<std::int32_t>(op.window());
    update.tensors = static_cast<std::int32_t>(tensors);
    std::vector<ProductArguments> products;
    if (pairs > 0) {
        float* to = operands.get<float>("products", op.products, 1, pairs);
        for (std::int64_t first = 0; first < pairs; first += kPairs) {
            ProductArguments& part = products.emplace_back(ProductArguments{});
            part.scales = update.scales;
            part.products = to + first;
            part.pairs = static_cast<std::int32_t>(std::min<std::int64_t>(kPairs, pairs - first));
            for (std::int32_t p = 0; p < part.pairs; ++p) {
                const auto& pair = op.pairs[static_cast<std::size_t>(first + p)];
                part.left[p] = pair[0];
                part.right[p] = pair[1];
            }
        }
    }
    return [=](Stream stream) {
        update_scales<<<static_cast<unsigned>(ceil_div(update.tensors, kThreads)), kThreads, 0, stream>>>(update);
        CUDA_CHECK(cudaGetLastError());
        for (const ProductArguments& part : products) {
            invert_products<<<static_cast<unsigned>(ceil_div(part.pairs, kThreads)), kThreads, 0, stream>>>(part);
            CUDA_CHECK(cudaGetLastError());
        }
    };
}

template <>
Plan choose(const UpdateScales& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

template <>
Launch bind(const CountF8& op, const Plan&, const Memory& memory) {
    require_shape(op);
    const PointwiseOperands operands(op.name, memory);
    View plain = op.codes;
    plain.order = ColumnOrder::natural;  // a count has no order
    const uint4* codes = nullptr;
    std::uint32_t to_end = 0;
    with_f8(plain.dtype, [&]<class F8>(F8) {
        codes = reinterpret_cast<const uint4*>(operands.get_vectors<F8>("codes", plain, plain.rows, plain.cols));
        to_end = (0x80u - F8::kLargestCode) * 0x01010101u;
    });
    auto* counts = operands.get<std::int32_t>("counts", op.counts, 1, 2);
    const std::int64_t rows = op.counted_rows(), vectors = op.codes.cols / 16, ld = op.codes.ld / 16 * op.every;
    const std::int64_t blocks = std::min<std::int64_t>(ceil_div(rows, kThreads / 32), 8 * kMultiprocessors);
    return [=](Stream stream) {
        CUDA_CHECK(cudaMemsetAsync(counts, 0, 2 * sizeof *counts, stream));
        count_f8<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(codes, ld, rows, vectors, to_end, counts);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const CountF8& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
