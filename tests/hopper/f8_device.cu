#include "tests/hopper/f8_device.h"

#include <cuda_fp8.h>

#include "kernels/core/f8.h"
#include "kernels/hopper/ptx/math.cuh"
#include "kernels/hopper/sm90/check.h"

namespace coda::test {

namespace {

__global__ void convert(const float* values, std::int64_t count, DeviceCodes* codes) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float value = values[i];
    codes[i].ours_e4m3 = F8E4M3(value).bits;
    codes[i].ours_e5m2 = F8E5M2(value).bits;
    codes[i].cuda_e4m3 = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
    codes[i].cuda_e5m2 = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
    // Each place of the word, the others taken by other numbers.
    for (int place = 0; place < 4; ++place) {
        float four[4] = {1, 2, 3, 4};
        four[place] = value;
        const std::uint32_t word = hopper::ptx::round_to_e4m3x4(four[0], four[1], four[2], four[3]);
        codes[i].packed[place] = static_cast<std::uint8_t>(word >> 8 * place);
    }
}

}  // namespace

std::vector<DeviceCodes> convert_on_device(const std::vector<float>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    float* from = nullptr;
    DeviceCodes* to = nullptr;
    CUDA_CHECK(cudaMalloc(&from, values.size() * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&to, values.size() * sizeof(DeviceCodes)));
    CUDA_CHECK(cudaMemcpy(from, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    convert<<<static_cast<unsigned>((count + 255) / 256), 256>>>(from, count, to);
    CUDA_CHECK(cudaGetLastError());
    std::vector<DeviceCodes> codes(values.size());
    CUDA_CHECK(cudaMemcpy(codes.data(), to, values.size() * sizeof(DeviceCodes), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(from));
    CUDA_CHECK(cudaFree(to));
    return codes;
}

}  // namespace coda::test
