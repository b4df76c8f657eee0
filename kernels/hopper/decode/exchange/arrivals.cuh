// Orders the use of Lamport buffers in one layer before their use in the next (Exchange). Device.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"

namespace coda::hopper::decode {

/// Waits, at attention, until all SMs are done with the layer before: epilogue warps before they write and empty, and
/// consumer warps before they read. All stores of that layer to Lamport buffers then come before what this warp does,
/// and warps that wait on its barriers. Between layers of a step; begin_step() sees to the rest. As a rule all have
/// arrived: qkv has run since.
__device__ __forceinline__ void await_arrivals(const WarpContext& ctx, const WorkItem& item) {
    constexpr int kLoads = 5;  // at the same time: the 132 SMs of an H100 or H200 in one turn
    const auto since = static_cast<std::uint32_t>(item.op % kLayerOps + 1);
    const std::uint32_t epoch = item.epoch - since;  // of down in the layer before
    for (int first = 0; first < ctx.grid(); first += 32 * kLoads)
        ctx.watchdog.wait_together(item, Awaited::arrivals, [&] {
            uint2 seen[kLoads];
#pragma unroll
            for (int u = 0; u < kLoads; ++u) {
                const int sm = first + 32 * u + ctx.lane;
                seen[u] = sm < ctx.grid() ? ptx::load_numbers(ctx.arrivals_of(sm)) : uint2{epoch, epoch};
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
