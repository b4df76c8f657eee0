#include "kernels/oracle/decode_f8.h"

#include <cuda_bf16.h>

#include "kernels/core/f8.h"
#include "kernels/hopper/sm90/check.h"

namespace coda::oracle {

namespace {

template <class F8>
__global__ void decode(const F8* from, std::int64_t ld, std::int64_t rows, std::int64_t cols, __nv_bfloat16* to) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * cols;
         i += stride)
        to[i] = __float2bfloat16(static_cast<float>(from[i / cols * ld + i % cols]));
}

}  // namespace

void decode_f8(const View& view, const void* data, std::int64_t first, std::int64_t rows, void* out,
               hopper::Stream stream) {
    const auto run = [&]<class F8>(F8) {
        decode<<<1024, 256, 0, stream>>>(static_cast<const F8*>(data) + first * view.ld, view.ld, rows, view.cols,
                                         static_cast<__nv_bfloat16*>(out));
    };
    if (view.dtype == DType::f8e4m3) {
        run(F8E4M3());
    } else {
        run(F8E5M2());
    }
    CUDA_CHECK(cudaGetLastError());
}

}  // namespace coda::oracle
