// Between layers: what orders the use of panels in one layer before that in the next (Exchange). Device.
#pragma once

#include "kernels/hopper/decode/exchange/self.cuh"

namespace coda::hopper::decode {

/// Waits until all SMs are done with the layer before: epilogue warps at attention, before they write and empty, and
/// consumer warps at attn_out, before they read. All stores of that layer to panels then come before what this warp
/// does, and warps that wait on its barriers. Between layers of a step; begin_step() sees to the rest. The arrivals are
/// there as a rule: qkv has gone by since.
__device__ __forceinline__ void await_arrivals(const Self& self, const Place& place) {
    constexpr int kLoads = 5;  // on their way at a time: an H100's and an H200's 132 SMs in one turn
    const auto since = static_cast<std::uint32_t>(place.stage % kLayerStages + 1);
    const std::uint32_t epoch = place.epoch - since;  // of down in the layer before
    for (int first = 0; first < self.grid; first += 32 * kLoads)
        self.watch.wait_or_exit(place, Awaited::arrivals, [&] {
            uint2 seen[kLoads];
#pragma unroll
            for (int u = 0; u < kLoads; ++u) {
                const int sm = first + 32 * u + self.lane;
                seen[u] = sm < self.grid ? ptx::load_numbers(self.arrivals_of(sm)) : uint2{epoch, epoch};
            }
            bool all = true;
#pragma unroll
            for (int u = 0; u < kLoads; ++u)
                all = all && is_not_before(seen[u].x, epoch) && is_not_before(seen[u].y, epoch);
            return all;
        });
    ptx::fence_gpu();
    __syncwarp();
}

}  // namespace coda::hopper::decode
