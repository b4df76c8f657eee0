// Eight bf16 as the 16 bytes of one access, and sums over a block in one fixed order. Device.
#pragma once

#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

struct Eight {
    float value[8];
};

__device__ inline Eight unpack(const uint4& bits) {
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    Eight result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_bf16(words[i]);
        result.value[2 * i] = pair.x;
        result.value[2 * i + 1] = pair.y;
    }
    return result;
}

__device__ inline uint4 pack(const Eight& eight) {
    return {pack_bf16(eight.value[0], eight.value[1]), pack_bf16(eight.value[2], eight.value[3]),
            pack_bf16(eight.value[4], eight.value[5]), pack_bf16(eight.value[6], eight.value[7])};
}

/// Eight fp32 as the 32 bytes of two accesses.
__device__ inline Eight load_eight(const float4* from) {
    const float4 low = __ldg(from), high = __ldg(from + 1);
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

/// Sum over the block's kThreads; the result is in thread 0.
template <int kThreads, class T>
__device__ T block_sum(T value) {
    static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps, whose sums one warp can add");
    __shared__ T warps[kThreads / 32];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return 0;
    value = threadIdx.x < kThreads / 32 ? warps[threadIdx.x] : T(0);
    value = warp_sum(value);
    return value;
}

}  // namespace coda::hopper
