// row_stats - per row the largest magnitude, the sum of squares and the number of zeros
//
// One block per row; a thread takes every kThreads-th element, and a tree over shared memory joins the threads, so the
// order of the sum depends only on the width. Magnitudes are compared as integers: their bits have the order of the
// numbers, with infinity above them and NaN above that. It reads each element once; a debugging run is no place for
// wider loads.
#include <cuda_runtime.h>

#include <limits>

#include "kernels/hopper/pointwise/row_stats.h"
#include "kernels/hopper/sm90/check.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

/// An element's bits without the sign, and the number that such bits are.
template <class Word>
struct Magnitude;
template <>
struct Magnitude<std::uint16_t> {  // bf16
    static constexpr std::uint16_t kMask = 0x7fff;
    static __device__ double value(std::uint16_t bits) {
        return static_cast<double>(__uint_as_float(static_cast<unsigned>(bits) << 16));
    }
};
template <>
struct Magnitude<std::uint32_t> {
    static constexpr std::uint32_t kMask = 0x7fffffff;
    static __device__ double value(std::uint32_t bits) { return static_cast<double>(__uint_as_float(bits)); }
};
template <>
struct Magnitude<std::uint64_t> {
    static constexpr std::uint64_t kMask = 0x7fffffffffffffff;
    static __device__ double value(std::uint64_t bits) { return __longlong_as_double(static_cast<long long>(bits)); }
};

template <class Word>
__global__ void row_stats(const Word* elements, std::int64_t cols, std::int64_t ld, RowStats* result) {
    using Of = Magnitude<Word>;
    __shared__ double squares[kThreads];
    __shared__ Word tops[kThreads];
    __shared__ int zeros[kThreads];
    const Word* row = elements + blockIdx.x * ld;
    const int thread = static_cast<int>(threadIdx.x);
    Word top = 0;
    double square = 0;
    int zero = 0;
    for (std::int64_t c = thread; c < cols; c += kThreads) {
        const Word bits = row[c] & Of::kMask;
        const double value = Of::value(bits);
        top = bits > top ? bits : top;
        square += value * value;
        zero += bits == 0;
    }
    squares[thread] = square;
    tops[thread] = top;
    zeros[thread] = zero;
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread >= half) continue;
        squares[thread] += squares[thread + half];
        tops[thread] = tops[thread + half] > tops[thread] ? tops[thread + half] : tops[thread];
        zeros[thread] += zeros[thread + half];
    }
    if (thread == 0) result[blockIdx.x] = {.amax = Of::value(tops[0]), .square = squares[0], .zeros = zeros[0]};
}

template <class Word>
void enqueue(const View& view, const std::byte* elements, RowStats* result, Stream stream) {
    row_stats<<<static_cast<unsigned>(view.rows), kThreads, 0, stream>>>(reinterpret_cast<const Word*>(elements),
                                                                         view.cols, view.ld, result);
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void enqueue_row_stats(const View& view, const Memory& memory, RowStats* device_result, Stream stream) {
    require(view.dtype == DType::bf16 || view.dtype == DType::f32 || view.dtype == DType::f64,
            "row statistics got a view of ", name_of(view.dtype), ", expected bf16, f32 or f64");
    require(view.rows <= std::numeric_limits<int>::max() && view.cols <= std::numeric_limits<int>::max(),
            "row statistics got a view of ", view.rows, " x ", view.cols, ", expected at most 2^31 - 1 of each");
    if (view.rows == 0) return;
    const std::byte* elements = memory.address(view);
    if (view.dtype == DType::bf16) enqueue<std::uint16_t>(view, elements, device_result, stream);
    if (view.dtype == DType::f32) enqueue<std::uint32_t>(view, elements, device_result, stream);
    if (view.dtype == DType::f64) enqueue<std::uint64_t>(view, elements, device_result, stream);
}

}  // namespace coda::hopper
