// The passes over rows around attention_backward: row statistics before it, finished dQ after it.
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
inline constexpr int kFinishDQueryThreads = 2 * kWarpgroupThreads;  // as the consumers that made the sums

/// Writes lse / ln 2, delta = Σ_head out dout and doc_start to padded work space, with kHeadDim / 8 threads per row;
/// clears the turns.
template <int kHeadDim>
__global__ void __launch_bounds__(kRowStatisticsThreads)
    attention_row_statistics(const RowStatisticsArguments arguments) {
    constexpr int kLanes = kHeadDim / 8;
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
    const std::int64_t thread = block * kRowStatisticsThreads + threadIdx.x;
    if (thread < arguments.turns) arguments.scratch.turns[thread] = 0;

    float delta = 0;
    if (valid && arguments.delta == nullptr) {
        const std::int64_t column = static_cast<std::int64_t>(head) * kHeadDim + 8 * lane;
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
    if (valid && arguments.delta != nullptr) delta = arguments.delta[head * arguments.delta_ld + token];
    arguments.scratch.delta[to] = delta;
    arguments.scratch.lse_log2[to] = valid ? arguments.lse[head * arguments.lse_ld + token] * kLog2e : INFINITY;
    if (arguments.doc_start != nullptr && head == 0)
        arguments.scratch.start[static_cast<std::int64_t>(sequence) * arguments.padded + row] =
            arguments.doc_start[valid ? token : token - row + arguments.seq_len - 1];
}

struct FinishDQueryArguments {
    const float* dquery;  // fragment order
    const __nv_bfloat16* qkv;
    __nv_bfloat16* dqkv;
    std::int64_t qkv_ld, dqkv_ld;
    RopeBackwardArguments rope;
    int seq_len, padded, heads;
    float scale;
};

struct FinishWithNormArguments : FinishDQueryArguments {
    NormBackwardArguments norm;
};
struct FinishWithBiasArguments : FinishDQueryArguments {
    BiasBackwardArguments bias;
};
template <class Tile>
using FinishArgumentsOf =
    AndCodes<Tile, std::conditional_t<Tile::kNorm, FinishWithNormArguments,
                                      std::conditional_t<Tile::kBias, FinishWithBiasArguments, FinishDQueryArguments>>>;

/// One query tile of one head: scales dQ, takes its dot part with q, turns it back through RoPE, and rounds it to bf16,
/// and this to FP8 codes where the tile rounds. With a norm of heads, goes back through it too. With a bias, leaves its
/// share out of dot, and sums the columns.
template <class Tile>
__global__ void __launch_bounds__(kFinishDQueryThreads)
    attention_finish_dquery(const FinishArgumentsOf<Tile> arguments) {
    constexpr int kPitch = Tile::kHeadDim * 2 + 16;  // bytes; rows of a warp's access fall on different banks
    constexpr int kChunks = Tile::kHeadDim / 8;      // of 16 bytes in a row
    __shared__ alignas(16) std::byte rows[Tile::kQueries * kPitch];
    __shared__ float halves[Tile::kConsumers][64];  // dot parts of the two column halves at head_dim 128

    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const int thread = static_cast<int>(threadIdx.x);
    const int first = static_cast<int>(blockIdx.x) * Tile::kQueries;
    const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
    const std::int64_t token0 = static_cast<std::int64_t>(sequence) * arguments.seq_len + first;
    const int count = min(Tile::kQueries, arguments.seq_len - first);
    const bool rotates = arguments.rope.positions != nullptr;

    const int consumer = thread / kWarpgroupThreads, warp = thread / 32 % 4, lane = thread % 32;
    const std::int64_t share =
        ((static_cast<std::int64_t>(sequence) * arguments.heads + head) * (arguments.padded / Tile::kQueries) +
         blockIdx.x) *
            Tile::kConsumers +
        consumer;
    const float4* from =
        reinterpret_cast<const float4*>(arguments.dquery + share * Tile::kDQueryFloats) + thread % kWarpgroupThreads;
    float4 sums[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = from[kWarpgroupThreads * i];
    if constexpr (Tile::kNorm) {
        __shared__ float columns[Tile::kConsumers][4][64];
        finish_normed_queries<Tile, kPitch>(arguments, token0, first, head, sequence, sums, rows, halves, columns);
    } else {
        if (rotates) {
            for (int i = thread; i < count * kChunks; i += kFinishDQueryThreads)
                *reinterpret_cast<uint4*>(rows + i / kChunks * kPitch + i % kChunks * 16) =
                    *reinterpret_cast<const uint4*>(arguments.qkv + (token0 + i / kChunks) * arguments.qkv_ld +
                                                    head * Tile::kHeadDim + i % kChunks * 8);
            __syncthreads();
        }
        [[maybe_unused]] float2 columns[8] = {};  // of dQ without rstd
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (Tile::kHeadDim == 64 ? 64 * consumer : 0) + Fragment::row(warp, lane, half);
            const int column = (Tile::kHeadDim == 64 ? 0 : 64 * consumer) + 2 * (lane % 4);
            const bool valid = row < count;
            const float2* angles = nullptr;
            if (rotates && valid)
                angles =
                    arguments.rope.rope +
                    static_cast<std::int64_t>(__ldg(arguments.rope.positions + token0 + row)) * (Tile::kHeadDim / 2);
            const float factor = angles != nullptr ? arguments.rope.factor(token0 + row) : 1.0f;
            const float scale = Tile::kBias ? arguments.scale : arguments.scale * factor;
            float dot = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float2 gradient = half == 0 ? make_float2(sums[i].x, sums[i].y) : make_float2(sums[i].z, sums[i].w);
                gradient = {gradient.x * scale, gradient.y * scale};
                auto* pair = reinterpret_cast<std::uint32_t*>(rows + row * kPitch + (column + 8 * i) * 2);
                if (angles != nullptr) {
                    const float2 value = unpack_bf16(*pair);
                    dot += value.x * gradient.x + value.y * gradient.y;
                    const float2 angle = __ldg(angles + column / 2 + 4 * i);
                    const Pair<float> turned = unrotate_pair(Pair<float>{gradient.x, gradient.y}, angle.x, angle.y);
                    gradient = {turned.first, turned.second};
                    if constexpr (Tile::kBias) {
                        const float2 bias = __ldg(arguments.bias.bias + (head * Tile::kHeadDim + column) / 2 + 4 * i);
                        dot -= bias.x * gradient.x + bias.y * gradient.y;
                        columns[i] = {columns[i].x + gradient.x, columns[i].y + gradient.y};
                        gradient = {gradient.x * factor, gradient.y * factor};
                    }
                }
                *pair = pack_bf16(gradient.x, gradient.y);
            }
            if (rotates) {
                dot = quad_sum(dot);
                if constexpr (Tile::kBias) dot *= factor;
                if (lane % 4 == 0) {
                    if constexpr (Tile::kHeadDim == 64) {
                        if (valid) arguments.rope.dot[head * arguments.rope.dot_ld + token0 + row] = dot;
                    } else {
                        halves[consumer][row] = dot;
                    }
                }
            }
        }
        if constexpr (Tile::kBias) {
            __shared__ alignas(8) float of_warps[Tile::kConsumers][4][64];
            sum_over_rows(columns, lane);
            put_columns(columns, of_warps[consumer][warp], lane);
            __syncthreads();
            const int own = thread % kWarpgroupThreads;
            const int tile_row = first + (Tile::kHeadDim == 64 ? 64 * consumer : 0);
            const int column = head * Tile::kHeadDim + (Tile::kHeadDim == 64 ? 0 : 64 * consumer) + own;
            if (own < 64 && tile_row < arguments.seq_len)
                arguments.bias.partials(sequence, tile_row)[column] = column_sum(of_warps[consumer], own);
        } else {
            __syncthreads();
        }
        if (Tile::kHeadDim == 128 && rotates && thread < count)
            arguments.rope.dot[head * arguments.rope.dot_ld + token0 + thread] = halves[0][thread] + halves[1][thread];
    }
    if constexpr (Tile::kRounds) {
        store_codes<DType::f8e5m2, Tile::kHeadDim, kFinishDQueryThreads>(
            arguments.codes, static_cast<int>(token0), count, head * Tile::kHeadDim, thread,
            PitchedRows<kPitch>{ptx::shared_address(rows)});
    } else {
        for (int i = thread; i < count * kChunks; i += kFinishDQueryThreads)
            *reinterpret_cast<uint4*>(arguments.dqkv + (token0 + i / kChunks) * arguments.dqkv_ld +
                                      head * Tile::kHeadDim + i % kChunks * 8) =
                *reinterpret_cast<const uint4*>(rows + i / kChunks * kPitch + i % kChunks * 16);
    }
}

}  // namespace coda::hopper
