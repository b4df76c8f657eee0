// The pass over dQ after attention_backward: sums in fragment order become rows of dqkv.
//
// A CTA takes a query tile of one head. A bulk copy loads its sums, and TMA the rows of q that dot needs, or of pre
// with a norm of heads. These loads take no registers, so several CTAs per SM have theirs in flight. The consumers are
// those of attention_backward: each has 64 rows of 64 columns, which it stages over the rows that it has read.
#pragma once

#include <cuda.h>

#include "kernels/hopper/attention/backward_bias.cuh"
#include "kernels/hopper/attention/backward_norm.cuh"
#include "kernels/hopper/ptx/bulk.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/shared_vectors.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/swizzle.h"
#include "kernels/math/rope.h"

namespace coda::hopper {

struct FinishDQueryArguments {
    CUtensorMap rows;  // of qkv, or of pre with a norm: query tiles
    CUtensorMap dqkv;  // 64 rows
    const float* dquery;
    RopeBackwardArguments rope;
    int seq_len, padded, heads;
    int first_sequence;  // of the launch, where the maps have all sequences
    float scale;
};

template <class Tile>
using FinishArgumentsOf = WithForm<Tile, FinishDQueryArguments>;

inline constexpr int kFinishDQueryThreads = 2 * kWarpgroupThreads;  // as the consumers that made the sums

template <class Tile>
struct FinishShared {
    static constexpr int kColumnBytes = Tile::kConsumers * 4 * 64 * 4, kHalfBytes = Tile::kConsumers * 64 * 4;
    static constexpr int kBytes = Tile::kQueryBytes + Tile::kDQueryBytes + kColumnBytes + kHalfBytes + 8;
    std::uint32_t base;

    __device__ explicit FinishShared(const void* dynamic) : base(ptx::shared_address(dynamic)) {
        if (base % kSwizzleAtomBytes != 0) __trap();
    }
    __device__ std::uint32_t rows() const { return base; }
    __device__ std::uint32_t dquery() const { return base + Tile::kQueryBytes; }
    /// Of each consumer: sums of 64 columns over the rows of each warp.
    __device__ std::uint32_t columns(int consumer) const {
        return dquery() + Tile::kDQueryBytes + consumer * 4 * 64 * 4;
    }
    /// Of each consumer: a share of 64 row sums, where consumers split rows.
    __device__ std::uint32_t halves(int consumer) const { return columns(0) + kColumnBytes + consumer * 64 * 4; }
    __device__ std::uint32_t full() const { return columns(0) + kColumnBytes + kHalfBytes; }
};

/// What a thread of the pass knows of its part of the tile.
template <class Tile>
struct FinishThread {
    static constexpr bool kSplitRows = Tile::kHeadDim == 128;
    const FinishShared<Tile>& shared;
    int consumer, warp, lane;
    int count;            // rows of the tile that the sequence has
    std::int64_t token0;  // of the first one

    /// The consumer's first row and column.
    __device__ int first_row() const { return kSplitRows ? 0 : 64 * consumer; }
    __device__ int first_column() const { return kSplitRows ? 64 * consumer : 0; }
    __device__ int row(int half) const { return first_row() + Fragment::row(warp, lane, half); }
    __device__ int column() const { return first_column() + 2 * (lane % 4); }  // of the first pair
    __device__ bool valid(int half) const { return row(half) < count; }
    /// Pair i of a row, in the rows that were loaded and in what is staged over them.
    __device__ std::uint32_t pair(int half, int i) const {
        return shared.rows() + (kSplitRows ? consumer * Tile::kQueryPanelBytes : 0) +
               swizzled_offset(row(half), 16 * i + 4 * (lane % 4), kPanelRowBytes);
    }
    /// The same pair of dQ's sums.
    __device__ float2 sum(int half, int i) const {
        return ptx::load_shared_pair(shared.dquery() +
                                     ((consumer * 8 + i) * kWarpgroupThreads + 32 * warp + lane) * 16 + 8 * half);
    }
    /// The angles of a row's first pair. Its pair i has those 4 i later.
    __device__ const float2* angles_at(const RopeBackwardArguments& rope, int half) const {
        return rope.rope +
               static_cast<std::int64_t>(__ldg(rope.positions + token0 + row(half))) * (Tile::kHeadDim / 2) +
               column() / 2;
    }
    /// Where consumers split a row: hands on the thread's quad's share of a sum over it.
    __device__ void put_half(int half, float share) const {
        if (lane % 4 == 0) ptx::store_shared(shared.halves(consumer) + 4 * row(half), __float_as_uint(share));
    }
    /// The shares of both for a row of the tile, after a barrier.
    __device__ float whole(int at) const {
        return __uint_as_float(ptx::load_shared(shared.halves(0) + 4 * at)) +
               __uint_as_float(ptx::load_shared(shared.halves(1) + 4 * at));
    }
    /// Meets the other threads of the consumer.
    __device__ void meet() const { ptx::named_barrier_sync(1 + consumer, kWarpgroupThreads); }
};

/// Without a norm: scales dQ, takes its dot part with q, and turns it back through RoPE. With a bias, leaves its share
/// out of dot, and sums the columns.
template <class Tile>
__device__ __forceinline__ void finish_queries(const FinishArgumentsOf<Tile>& arguments, const FinishThread<Tile>& at,
                                               int head, int sequence, int first, const float2 (&angles)[2][8]) {
    const bool has_dot = arguments.rope.has_dot();
    [[maybe_unused]] float2 columns[8] = {};  // of dQ without rstd
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float factor = has_dot && at.valid(half) ? arguments.rope.factor(at.token0 + at.row(half)) : 1.0f;
        const float scale = Tile::kBias ? arguments.scale : arguments.scale * factor;
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float2 gradient = at.sum(half, i);
            gradient = {gradient.x * scale, gradient.y * scale};
            if (has_dot) {
                const float2 value = unpack_bf16(ptx::load_shared(at.pair(half, i)));
                dot += value.x * gradient.x + value.y * gradient.y;
                if (arguments.rope.rotates()) {
                    const Pair<float> turned =
                        unrotate_pair(Pair<float>{gradient.x, gradient.y}, angles[half][i].x, angles[half][i].y);
                    gradient = {turned.first, turned.second};
                }
                if constexpr (Tile::kBias) {
                    const float2 bias = __ldg(arguments.bias.bias + (head * Tile::kHeadDim + at.column()) / 2 + 4 * i);
                    dot -= bias.x * gradient.x + bias.y * gradient.y;
                    columns[i] = {columns[i].x + gradient.x, columns[i].y + gradient.y};
                    gradient = {gradient.x * factor, gradient.y * factor};
                }
            }
            ptx::store_shared(at.pair(half, i), pack_bf16(gradient.x, gradient.y));
        }
        if (has_dot) {
            dot = quad_sum(dot);
            if constexpr (Tile::kBias) dot *= factor;
            if constexpr (at.kSplitRows)
                at.put_half(half, dot);
            else if (at.lane % 4 == 0 && at.valid(half))
                arguments.rope.dot[head * arguments.rope.dot_ld + at.token0 + at.row(half)] = dot;
        }
    }
    if constexpr (Tile::kBias) {
        sum_over_rows(columns, at.lane);
        put_columns(columns, at.shared.columns(at.consumer), at.warp, at.lane);
        at.meet();
        const int own = 32 * at.warp + at.lane, tile_row = first + at.first_row();
        if (own < 64 && tile_row < arguments.seq_len)
            arguments.bias.partials(sequence, tile_row)[head * Tile::kHeadDim + at.first_column() + own] =
                column_sum<64>(at.shared.columns(at.consumer), own);
    }
    if constexpr (at.kSplitRows) {
        if (!has_dot) return;
        __syncthreads();
        const int own = 32 * at.warp + at.lane;
        if (at.consumer == 0 && own < at.count)
            arguments.rope.dot[head * arguments.rope.dot_ld + at.token0 + own] = at.whole(own);
    }
}

/// With a norm: the same back through it too, with the sums of dgain.
template <class Tile>
__device__ __forceinline__ void finish_normed_queries(const FinishArgumentsOf<Tile>& arguments,
                                                      const FinishThread<Tile>& at, int head, int sequence, int first,
                                                      const float2 (&angles)[2][8]) {
    const RopeBackwardArguments& rope = arguments.rope;
    const NormBackwardArguments& norm = arguments.norm;
    const float2* gain = norm.gain + at.column() / 2;
    NormRows<Tile::kHeadDim, 8> normed;
    float gradient[32], share[2], rstd[2];
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2 sum = at.sum(half, i);
            gradient[4 * i + 2 * half] = sum.x * arguments.scale;
            gradient[4 * i + 2 * half + 1] = sum.y * arguments.scale;
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const std::int64_t token = at.token0 + at.row(half);
        rstd[half] = at.valid(half) ? rope.factor(token) : 0.0f;
        normed.rho[half] = at.valid(half) ? norm.rho[head * norm.rho_ld + token] : 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) normed.pre[half][i] = ptx::load_shared(at.pair(half, i));
        share[half] = normed.begin(half, angles[half], gain, gradient);
        if constexpr (at.kSplitRows) at.put_half(half, share[half]);
    }
    if constexpr (at.kSplitRows) __syncthreads();
    float2 columns[8] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = at.kSplitRows ? at.whole(at.row(half)) : share[half];
        normed.finish(half, sum, rstd[half], gain, gradient, columns);
        if (at.valid(half) && at.lane % 4 == 0 && (!at.kSplitRows || at.consumer == 0))
            rope.dot[head * rope.dot_ld + at.token0 + at.row(half)] = normed.dot(half, sum, rstd[half], norm.eps);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            ptx::store_shared(at.pair(half, i), pack_bf16(gradient[4 * i + 2 * half], gradient[4 * i + 2 * half + 1]));
    }
    sum_over_rows(columns, at.lane);
    put_columns(columns, at.shared.columns(at.consumer), at.warp, at.lane);
    at.meet();
    const int own = 32 * at.warp + at.lane, tile_row = first + at.first_row();
    if (own >= 64 || tile_row >= arguments.seq_len) return;
    norm.dgain[norm.partial(head, sequence, tile_row) * Tile::kHeadDim + at.first_column() + own] =
        column_sum<64>(at.shared.columns(at.consumer), own);
}

/// One query tile of one head. The bounds on registers leave room for four CTAs per SM, with a norm for two.
template <class Tile>
__global__ void __launch_bounds__(kFinishDQueryThreads, Tile::kNorm ? 2 : 4)
    attention_finish_dquery(const __grid_constant__ FinishArgumentsOf<Tile> arguments) {
    extern __shared__ __align__(kSwizzleAtomBytes) std::byte dynamic_shared[];
    const FinishShared<Tile> shared(dynamic_shared);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
        ptx::mbarrier_init(shared.full(), 1);
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(&arguments.rows);
        if constexpr (!Tile::kRounds) ptx::prefetch_tensor_map(&arguments.dqkv);
    }
    __syncthreads();
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const int first = static_cast<int>(blockIdx.x) * Tile::kQueries;
    const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
    const bool has_dot = arguments.rope.has_dot();
    // Load the sums, and q or pre
    if (thread == 0) {
        const std::int64_t tile =
            (static_cast<std::int64_t>(sequence) * arguments.heads + head) * (arguments.padded / Tile::kQueries) +
            blockIdx.x;
        ptx::mbarrier_arrive_expect(shared.full(), Tile::kDQueryBytes + (has_dot ? Tile::kQueryBytes : 0));
        ptx::bulk_load(shared.dquery(), arguments.dquery + tile * (Tile::kDQueryBytes / 4), Tile::kDQueryBytes,
                       shared.full());
        if (has_dot)
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_load(shared.rows() + panel * Tile::kQueryPanelBytes, &arguments.rows,
                              head * Tile::kHeadDim + 64 * panel, first, arguments.first_sequence + sequence,
                              shared.full());
    }
    const FinishThread<Tile> at{shared,
                                thread / kWarpgroupThreads,
                                thread / 32 % 4,
                                thread % 32,
                                min(Tile::kQueries, arguments.seq_len - first),
                                static_cast<std::int64_t>(sequence) * arguments.seq_len + first};
    // Load the angles of the thread's pairs, while the copies are in flight
    float2 angles[2][8] = {};
    if (arguments.rope.rotates())
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (at.valid(half)) {
                const float2* from = at.angles_at(arguments.rope, half);
#pragma unroll
                for (int i = 0; i < 8; ++i) angles[half][i] = __ldg(from + 4 * i);
            }
    ptx::mbarrier_wait(shared.full(), 0);
    if constexpr (Tile::kNorm)
        finish_normed_queries<Tile>(arguments, at, head, sequence, first, angles);
    else
        finish_queries<Tile>(arguments, at, head, sequence, first, angles);
    // Store
    ptx::fence_async_shared();
    at.meet();
    const std::uint32_t staged = at.kSplitRows ? shared.rows() + at.consumer * Tile::kQueryPanelBytes : shared.rows();
    const int column = head * Tile::kHeadDim + at.first_column();
    if constexpr (Tile::kRounds) {
        store_codes<DType::f8e5m2, 64, kWarpgroupThreads>(
            arguments.codes, static_cast<int>(at.token0) + at.first_row(), min(64, at.count - at.first_row()), column,
            thread % kWarpgroupThreads, PanelRows{staged, Tile::kQueryPanelBytes, at.first_row()});
    } else if (thread % kWarpgroupThreads == 0) {
        ptx::tma_store(&arguments.dqkv, staged + at.first_row() * kPanelRowBytes, column, first + at.first_row(),
                       arguments.first_sequence + sequence);
        ptx::tma_store_commit();
        ptx::tma_store_wait_read<0>();
    }
}

}  // namespace coda::hopper
