// Elementwise comparison of live tensors with a formula, in double, in one fixed order. Device and host.
//
// A formula is a device lambda of (row, column), run by one thread per element: plain loops, no shared memory and no
// vector loads, nothing of what makes the kernels under test fast.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "kernels/core/f8.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/oracle/op_check.h"

namespace coda::oracle {

/// A row-major matrix of f32, bf16 or FP8, read as float.
struct Tensor {
    const void* data = nullptr;
    std::int64_t ld = 0;
    DType dtype = DType::f32;

    __device__ float operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t i = row * ld + column;
        if (dtype == DType::f32) return static_cast<const float*>(data)[i];
        if (dtype == DType::f8e4m3) return static_cast<const F8E4M3*>(data)[i];
        if (dtype == DType::f8e5m2) return static_cast<const F8E5M2*>(data)[i];
        return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    }
    __device__ float operator[](std::int64_t i) const { return (*this)(0, i); }
};

/// A band of a GEMM's result, or a live operand from row `first` on.
inline Tensor band_of(const float* product, std::int64_t columns) { return {product, columns, DType::f32}; }

inline Tensor live(const OpCheck& check, const View& view, std::int64_t first = 0) {
    if (!view) return {};
    return {check.memory().address(view) + first * view.ld * size_of(view.dtype), view.ld, view.dtype};
}

/// An operand as the launch found it: the captured copy, or the live tensor where the op does not overwrite it.
inline Tensor before(const OpCheck& check, const char* operand, const View& view, std::int64_t first = 0) {
    const std::byte* copy = check.captured(operand);
    if (copy == nullptr) return live(check, view, first);
    return {copy + first * view.cols * size_of(view.dtype), view.cols, view.dtype};
}

/// The same for an operand that the op overwrites, which must have been captured.
inline Tensor overwritten(const OpCheck& check, const char* operand, const View& view, std::int64_t first) {
    require(check.captured(operand) != nullptr, "oracle: ", operand,
            " is accumulated into and was not captured before the launch");
    return before(check, operand, view, first);
}

constexpr int kBlocks = 512, kThreads = 256;

template <class Fn>
__global__ void for_each_kernel(std::int64_t rows, std::int64_t columns, Fn fn) {
    const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * columns; i += stride)
        fn(i / columns, i % columns);
}

/// Calls the device function fn(row, column) for every element of rows x columns.
template <class Fn>
void for_each(const OpCheck& check, std::int64_t rows, std::int64_t columns, const Fn& fn) {
    for_each_kernel<<<kBlocks, kThreads, 0, check.stream()>>>(rows, columns, fn);
    CUDA_CHECK(cudaGetLastError());
}

/// Sums over elements of difference² and expected², and the largest magnitudes of both.
struct Sums {
    double difference = 0, expected = 0, largest_difference = 0, largest_expected = 0;

    __host__ __device__ void add(const Sums& other) {
        difference += other.difference;
        expected += other.expected;
        largest_difference =
            other.largest_difference > largest_difference ? other.largest_difference : largest_difference;
        largest_expected = other.largest_expected > largest_expected ? other.largest_expected : largest_expected;
    }
};

template <class Live, class Expected>
__global__ void compare_kernel(std::int64_t rows, std::int64_t columns, Live live, Expected expected, Sums* blocks) {
    __shared__ Sums threads[kThreads];
    Sums sums;
    const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * columns; i += stride) {
        const std::int64_t row = i / columns, column = i % columns;
        const auto want = static_cast<double>(expected(row, column));
        const double off = static_cast<double>(live(row, column)) - want;
        sums.add({off * off, want * want, fabs(off), fabs(want)});
    }
    threads[threadIdx.x] = sums;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < kThreads; ++i) sums.add(threads[i]);
    blocks[blockIdx.x] = sums;
}

template <class Live, class Expected>
Sums sums_over(const OpCheck& check, std::int64_t rows, std::int64_t columns, const Live& live,
               const Expected& expected) {
    static_assert(kBlocks * sizeof(Sums) <= WorkSpace::kSumsBytes);
    auto* blocks = static_cast<Sums*>(check.space().sums());
    compare_kernel<<<kBlocks, kThreads, 0, check.stream()>>>(rows, columns, live, expected, blocks);
    CUDA_CHECK(cudaGetLastError());
    std::array<Sums, kBlocks> host;
    CUDA_CHECK(cudaMemcpyAsync(host.data(), blocks, sizeof host, cudaMemcpyDeviceToHost, check.stream()));
    CUDA_CHECK(cudaStreamSynchronize(check.stream()));
    Sums total;
    for (const Sums& sums : host) total.add(sums);
    return total;
}

/// Compares live(row, column) with expected(row, column) over rows x columns and adds the result to the operand's sums.
template <class Live, class Expected>
void compare(OpCheck& check, const char* operand, std::int64_t rows, std::int64_t columns, const Live& live,
             const Expected& expected) {
    const Sums total = sums_over(check, rows, columns, live, expected);
    check.add(operand, {total.difference, total.expected, total.largest_difference, total.largest_expected});
}

/// 1 + an element's deviation, to be compared with 1.
template <class Deviation>
struct OneAndDeviation {
    Deviation deviation;
    __device__ double operator()(std::int64_t row, std::int64_t column) const { return 1 + deviation(row, column); }
};
struct One {
    __device__ double operator()(std::int64_t, std::int64_t) const { return 1; }
};

/// For elements whose sizes are many powers of two apart: deviation(row, column) is an element's difference divided by
/// its own size, so that no error is lost next to the largest element.
template <class Deviation>
void compare_each(OpCheck& check, const char* operand, std::int64_t rows, std::int64_t columns,
                  const Deviation& deviation) {
    compare(check, operand, rows, columns, OneAndDeviation<Deviation>{deviation}, One{});
}

/// An op's factor of all accumulators, 1 where it has none.
struct ScalarFactor {
    const float* value = nullptr;
    __device__ operator float() const { return value == nullptr ? 1.0f : *value; }
};
inline ScalarFactor scalar_factor(const View& view, const OpCheck& check) { return {check.memory().at<float>(view)}; }

/// An op's factor per row, 1 where it has none.
struct RowFactor {
    const float* rstd = nullptr;
    __device__ float operator[](std::int64_t row) const { return rstd == nullptr ? 1.0f : rstd[row]; }
};
inline RowFactor row_factor(const View& rstd, const OpCheck& check, std::int64_t first) {
    return {rstd ? check.memory().at<float>(rstd) + first : nullptr};
}

}  // namespace coda::oracle
