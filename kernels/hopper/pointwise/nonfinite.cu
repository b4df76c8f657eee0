// nonfinite - the smallest index of an element that is not finite, by an integer minimum: the same for any order
#include "kernels/hopper/pointwise/nonfinite.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/hopper/sm90/check.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 4096;

/// A number is not finite if every bit of its exponent is set; of f8e4m3, every bit but the sign.
template <class Word>
__global__ void first_nonfinite(const Word* elements, std::int64_t count, std::int64_t cols, std::int64_t ld,
                                Word exponent, unsigned long long* first) {
    const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
        const Word word = ld == cols ? elements[i] : elements[i / cols * ld + i % cols];
        if ((word & exponent) == exponent) {
            atomicMin(first, static_cast<unsigned long long>(i));
            return;
        }
    }
}

template <class Word>
void enqueue(const View& view, const std::byte* elements, Word exponent, std::int64_t* result, Stream stream) {
    const auto blocks = static_cast<unsigned>(std::min(ceil_div(view.count(), std::int64_t{kThreads}), kMaxBlocks));
    first_nonfinite<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const Word*>(elements), view.count(), view.cols,
                                                     view.rows == 1 ? view.cols : view.ld, exponent,
                                                     reinterpret_cast<unsigned long long*>(result));
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void enqueue_first_nonfinite(const View& view, const Memory& memory, std::int64_t* device_result, Stream stream) {
    require(view.dtype == DType::bf16 || view.dtype == DType::f32 || view.dtype == DType::f64 || is_f8(view.dtype),
            "a search for non-finite elements got a view of ", name_of(view.dtype), ", expected FP8, bf16, f32 or f64");
    // All bits set: -1 as a signed number, the largest as an unsigned one.
    CUDA_CHECK(cudaMemsetAsync(device_result, 0xff, sizeof *device_result, stream));
    if (view.count() == 0) return;
    const std::byte* elements = memory.address(view);
    if (view.dtype == DType::f8e4m3) enqueue<std::uint8_t>(view, elements, 0x7f, device_result, stream);
    if (view.dtype == DType::f8e5m2) enqueue<std::uint8_t>(view, elements, 0x7c, device_result, stream);
    if (view.dtype == DType::bf16) enqueue<std::uint16_t>(view, elements, 0x7f80, device_result, stream);
    if (view.dtype == DType::f32) enqueue<std::uint32_t>(view, elements, 0x7f800000, device_result, stream);
    if (view.dtype == DType::f64) enqueue<std::uint64_t>(view, elements, 0x7ff0000000000000, device_result, stream);
}

}  // namespace coda::hopper
