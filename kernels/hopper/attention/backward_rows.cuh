// The pass over rows before attention_backward: their statistics in padded work space.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/attention/backward.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

struct RowStatisticsArguments {
    const __nv_bfloat16* out;   // (M, H hd) forward output and
    const __nv_bfloat16* dout;  // (M, H hd) its gradient; null where delta is given
    std::int64_t out_ld, dout_ld;
    const float* lse;  // (H, M)
    std::int64_t lse_ld;
    const float* delta;  // (H, M), null where it is computed
    std::int64_t delta_ld;
    const std::int32_t* doc_start;  // (M), may be null
    BackwardScratch scratch;
    int seq_len, padded, batch;
    int turns;  // words from scratch.turns on that are to be cleared, the ticket among them
};

inline constexpr int kRowStatisticsThreads = 256;

/// Writes lse / ln 2, delta and doc_start to padded work space, and clears the turns. Where delta is not given,
/// computes it: Σ_head out dout, with kLanes threads per row, which have 8 columns each. Otherwise kLanes is 1.
template <int kLanes>
__global__ void __launch_bounds__(kRowStatisticsThreads)
    attention_row_statistics(const RowStatisticsArguments arguments) {
    // NOTE: no __ldg of what the predecessor may have written: the compiler moves such loads above the wait.
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const int row =
        static_cast<int>(blockIdx.x) * (kRowStatisticsThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
    const std::int64_t token = static_cast<std::int64_t>(sequence) * arguments.seq_len + row;
    const bool valid = row < arguments.seq_len;
    const std::int64_t block = (static_cast<std::int64_t>(sequence) * gridDim.y + head) * gridDim.x + blockIdx.x;
    const std::int64_t blocks = static_cast<std::int64_t>(gridDim.x) * gridDim.y * gridDim.z;
    for (std::int64_t i = block * kRowStatisticsThreads + threadIdx.x; i < arguments.turns;
         i += blocks * kRowStatisticsThreads)
        arguments.scratch.turns[i] = 0;

    float delta = 0;
    if (kLanes > 1 && valid) {
        const std::int64_t column = static_cast<std::int64_t>(head) * (8 * kLanes) + 8 * lane;
        const uint4 out = *reinterpret_cast<const uint4*>(arguments.out + token * arguments.out_ld + column);
        const uint4 dout = *reinterpret_cast<const uint4*>(arguments.dout + token * arguments.dout_ld + column);
        const std::uint32_t a[4] = {out.x, out.y, out.z, out.w}, b[4] = {dout.x, dout.y, dout.z, dout.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 x = unpack_bf16(a[i]), y = unpack_bf16(b[i]);
            delta += x.x * y.x + x.y * y.y;
        }
    }
    delta = warp_sum<kLanes>(delta);
    if (lane != 0 || row >= arguments.padded) return;
    const std::int64_t to = (static_cast<std::int64_t>(head) * arguments.batch + sequence) * arguments.padded + row;
    if (kLanes == 1 && valid) delta = arguments.delta[head * arguments.delta_ld + token];
    arguments.scratch.delta[to] = delta;
    arguments.scratch.lse_log2[to] = valid ? arguments.lse[head * arguments.lse_ld + token] * kLog2e : INFINITY;
    if (arguments.doc_start != nullptr && head == 0)
        arguments.scratch.start[static_cast<std::int64_t>(sequence) * arguments.padded + row] =
            arguments.doc_start[valid ? token : token - row + arguments.seq_len - 1];
}

}  // namespace coda::hopper
