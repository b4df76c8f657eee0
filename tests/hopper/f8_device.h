// FP8 codes of floats as the device makes them: by kernels/core/f8.h, by cuda_fp8.h and by the epilogues' packing.
#pragma once

#include <cstdint>
#include <vector>

namespace coda::test {

struct DeviceCodes {
    std::uint8_t ours_e4m3, ours_e5m2, cuda_e4m3, cuda_e5m2, packed[4];
};
std::vector<DeviceCodes> convert_on_device(const std::vector<float>& values);

}  // namespace coda::test
