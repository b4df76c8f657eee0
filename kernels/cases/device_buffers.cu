#include <cuda_bf16.h>

#include "kernels/cases/device_buffers.h"
#include "kernels/core/f8.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/random.h"

namespace coda::cases {

namespace {

__device__ float draw(Fill fill, float scale, std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
    const Random4 random = philox(seed, stream, index);
    const float uniform = (static_cast<float>(random.word[0]) + 0.5f) * 0x1p-32f;
    switch (fill) {
        case Fill::normal:
            return scale * sqrtf(-2.0f * logf(uniform)) * cospif(static_cast<float>(random.word[1]) * 0x1p-31f);
        case Fill::integers: {
            const auto span = 2 * static_cast<unsigned>(scale) + 1;
            return static_cast<float>(random.word[0] % span) - scale;
        }
        case Fill::positive: return scale * (0.5f + uniform);
        case Fill::ones: return scale;
        default: return __int_as_float(0x7fffffff);
    }
}

__global__ void fill_kernel(void* memory, DType dtype, std::int64_t count, Fill fill, float scale, std::uint64_t seed,
                            std::uint64_t stream) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        if (dtype == DType::u8) {
            static_cast<std::uint8_t*>(memory)[i] = 0xff;  // scratch: read as fp32 it is NaN
        } else if (dtype == DType::i32) {
            const auto limit = static_cast<std::int64_t>(scale);
            const Random4 random = philox(seed, stream, static_cast<std::uint64_t>(i));
            const std::int64_t value = fill == Fill::ones        ? limit
                                       : fill == Fill::positions ? i % limit
                                       : fill == Fill::int4      ? int4_word(i, random.word[0])
                                                                 : random.word[0] % (limit + 1) - 1;
            static_cast<std::int32_t*>(memory)[i] = static_cast<std::int32_t>(value);
        } else if (fill == Fill::angles) {
            const Random4 random = philox(seed, stream, static_cast<std::uint64_t>(i / 2));
            const float turns = static_cast<float>(random.word[0]) * 0x1p-31f;
            static_cast<float*>(memory)[i] = i % 2 == 0 ? cospif(turns) : sinpif(turns);
        } else {
            const float value = draw(fill, scale, seed, stream, static_cast<std::uint64_t>(i));
            if (dtype == DType::f64) {
                static_cast<double*>(memory)[i] = value;
            } else if (dtype == DType::f32) {
                static_cast<float*>(memory)[i] = value;
            } else if (is_f8(dtype)) {
                with_f8(dtype, [&](auto f8) { static_cast<decltype(f8)*>(memory)[i] = decltype(f8)(value); });
            } else {
                static_cast<__nv_bfloat16*>(memory)[i] = __float2bfloat16(value);
            }
        }
    }
}

}  // namespace

void fill_normal(void* memory, std::int64_t count, std::uint64_t seed, cudaStream_t stream) {
    fill_kernel<<<1024, 256, 0, stream>>>(memory, DType::bf16, count, Fill::normal, 1.0f, seed, 0);
    CUDA_CHECK(cudaGetLastError());
}

void fill_units(std::int32_t* memory, std::int64_t words, std::uint64_t seed, cudaStream_t stream) {
    fill_kernel<<<1024, 256, 0, stream>>>(memory, DType::i32, words, Fill::int4, 1.0f, seed, 0);
    CUDA_CHECK(cudaGetLastError());
}

DeviceBuffers::DeviceBuffers(const std::vector<Buffer>& buffers, std::uint64_t seed) {
    for (const Buffer& buffer : buffers) {
        void* memory = nullptr;
        CUDA_CHECK(cudaMalloc(&memory, static_cast<std::size_t>(buffer.view.span_bytes())));
        addresses_.push_back(static_cast<std::byte*>(memory));
        fill_kernel<<<1024, 256>>>(memory, buffer.view.dtype, buffer.view.span_bytes() / size_of(buffer.view.dtype),
                                   buffer.fill, static_cast<float>(buffer.scale), seed, addresses_.size());
        CUDA_CHECK(cudaGetLastError());
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    memory_ = Memory(addresses_);
}

DeviceBuffers::~DeviceBuffers() {
    for (std::byte* address : addresses_) cudaFree(address);
}

}  // namespace coda::cases
