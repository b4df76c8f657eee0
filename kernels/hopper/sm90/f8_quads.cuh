// FP8 codes in words of four, by rows and transposed. Device.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/hopper/ptx/math.cuh"

namespace coda::hopper {

/// The transpose of four words of four bytes.
__device__ __forceinline__ uint4 transpose_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    const std::uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    const std::uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    return {__byte_perm(ab_low, cd_low, 0x5410), __byte_perm(ab_low, cd_low, 0x7632),
            __byte_perm(ab_high, cd_high, 0x5410), __byte_perm(ab_high, cd_high, 0x7632)};
}

/// The token at place 4 quad + i of transposed rows, in paired order or as they come.
__device__ __forceinline__ int token_of(int quad, int i, bool paired) {
    if (!paired) return 4 * quad + i;
    return quad / 4 * 16 + quad % 4 * 2 + i / 2 + i % 2 * 8;
}

template <DType kFormat>
__device__ __forceinline__ std::uint32_t round_to_f8x4(const float* value) {
    if constexpr (kFormat == DType::f8e5m2) return ptx::round_to_e5m2x4(value[0], value[1], value[2], value[3]);
    return ptx::round_to_e4m3x4(value[0], value[1], value[2], value[3]);
}

}  // namespace coda::hopper
