// The pass over dQ after attention_backward: sums in fragment order become rows of dqkv.
//
// A CTA takes a query tile of one head. With a norm of heads, which leaves registers for two CTAs per SM, it takes some
// heads of a tile one after the other, keeps the tile's angles in registers, and loads two heads ahead. A bulk copy
// loads the sums, and TMA the rows of q that dot needs, or of pre with a norm. The consumers are those of
// attention_backward: each has 64 rows of 64 columns, which it stages over the rows that it has read.
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
    int seq_len, padded, batch, heads;
    int width;  // FinishOrder::width_of(heads)
    float scale;
};

template <class Tile>
using FinishArgumentsOf = WithForm<Tile, FinishDQueryArguments>;

inline constexpr int kFinishDQueryThreads = 2 * kWarpgroupThreads;  // as the consumers that made the sums

/// A query tile of one head.
struct FinishPlace {
    int tile, head, sequence;
};

/// The tiles of a CTA, in order. With a norm of heads the CTAs are persistent: groups of `width` heads of a query tile
/// are dealt to them in turn, so that at any time all are at the same sequences. Otherwise a CTA takes one tile.
template <class Tile>
struct FinishOrder {
    static constexpr bool kPersistent = Tile::kNorm;
    static constexpr int kBlocks = kPersistent ? 2 : 4;  // per SM, by registers and shared memory
    const FinishDQueryArguments& arguments;

    /// The heads of a group: a divisor of `heads`.
    static constexpr int width_of(int heads) {
        int width = kPersistent ? 4 : 1;
        while (heads % width != 0) --width;
        return width;
    }
    __device__ int tiles() const { return (arguments.seq_len + Tile::kQueries - 1) / Tile::kQueries; }
    __device__ int width() const { return kPersistent ? arguments.width : 1; }
    __device__ int groups() const { return arguments.heads / width(); }
    __device__ int count() const {
        if (!kPersistent) return 1;
        const int all = arguments.batch * tiles() * groups(), first = static_cast<int>(blockIdx.x);
        return (all - first + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x) * width();
    }
    __device__ FinishPlace at(int index) const {
        const int group = static_cast<int>(blockIdx.x) + index / width() * static_cast<int>(gridDim.x);
        const int rest = group / tiles();
        return {group % tiles(), rest % groups() * width() + index % width(), rest / groups()};
    }
};

template <class Tile>
struct FinishShared {
    static constexpr int kStages = FinishOrder<Tile>::kPersistent ? 2 : 1;
    static constexpr int kColumnBytes = Tile::kConsumers * 4 * 64 * 4, kHalfBytes = Tile::kConsumers * 64 * 4;
    static constexpr int kGainBytes = Tile::kNorm ? Tile::kHeadDim * 4 : 0;
    static constexpr int kBytes =
        kStages * (Tile::kQueryBytes + Tile::kDQueryBytes) + kColumnBytes + kHalfBytes + kGainBytes + kStages * 8;
    std::uint32_t base;

    __device__ explicit FinishShared(const void* dynamic) : base(ptx::shared_address(dynamic)) {
        if (base % kSwizzleAtomBytes != 0) __trap();
    }
    __device__ std::uint32_t rows(int stage) const { return base + stage * Tile::kQueryBytes; }
    __device__ std::uint32_t dquery(int stage) const { return rows(kStages) + stage * Tile::kDQueryBytes; }
    /// Of each consumer: sums of 64 columns over the rows of each warp.
    __device__ std::uint32_t columns(int consumer) const { return dquery(kStages) + consumer * 4 * 64 * 4; }
    /// Of each consumer: a share of 64 row sums, where consumers split rows.
    __device__ std::uint32_t halves(int consumer) const { return columns(0) + kColumnBytes + consumer * 64 * 4; }
    /// Of the norm of q heads.
    __device__ std::uint32_t gain() const { return columns(0) + kColumnBytes + kHalfBytes; }
    __device__ std::uint32_t full(int stage) const { return gain() + kGainBytes + 8 * stage; }
};

/// What a thread of the pass knows of its part of the tile.
template <class Tile>
struct FinishThread {
    static constexpr bool kSplitRows = Tile::kHeadDim == 128;
    const FinishShared<Tile>& shared;
    int consumer, warp, lane;
    int seq_len;
    int stage = 0;
    int head = 0, sequence = 0;
    int first = 0;  // position of the tile's first row
    int count = 0;  // rows of the tile that the sequence has

    /// The consumer's first row and column.
    __device__ int first_row() const { return kSplitRows ? 0 : 64 * consumer; }
    __device__ int first_column() const { return kSplitRows ? 64 * consumer : 0; }
    __device__ int row(int half) const { return first_row() + Fragment::row(warp, lane, half); }
    __device__ int column() const { return first_column() + 2 * (lane % 4); }  // of the first pair
    __device__ bool valid(int half) const { return row(half) < count; }
    /// Of the tile's row `row`.
    __device__ std::int64_t token(int row) const { return static_cast<std::int64_t>(sequence) * seq_len + first + row; }
    /// Pair i of a row, in the rows that were loaded and in what is staged over them.
    __device__ std::uint32_t pair(int half, int i) const {
        return shared.rows(stage) + (kSplitRows ? consumer * Tile::kQueryPanelBytes : 0) +
               swizzled_offset(row(half), 16 * i + 4 * (lane % 4), kPanelRowBytes);
    }
    /// The same pair of dQ's sums.
    __device__ float2 sum(int half, int i) const {
        return ptx::load_shared_pair(shared.dquery(stage) +
                                     ((consumer * 8 + i) * kWarpgroupThreads + 32 * warp + lane) * 16 + 8 * half);
    }
    /// The angles of a row's first pair. Its pair i has those 4 i later.
    __device__ const float2* angles_at(const RopeBackwardArguments& rope, int half) const {
        return rope.rope + static_cast<std::int64_t>(__ldg(rope.positions + token(row(half)))) * (Tile::kHeadDim / 2) +
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
                                               const float2 (&angles)[2][8]) {
    const bool has_dot = arguments.rope.has_dot();
    const int head = at.head;
    [[maybe_unused]] float2 columns[8] = {};  // of dQ without rstd
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float factor = has_dot && at.valid(half) ? arguments.rope.factor(at.token(at.row(half))) : 1.0f;
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
                arguments.rope.dot[head * arguments.rope.dot_ld + at.token(at.row(half))] = dot;
        }
    }
    if constexpr (Tile::kBias) {
        sum_over_rows(columns, at.lane);
        put_columns(columns, at.shared.columns(at.consumer), at.warp, at.lane);
        at.meet();
        const int own = 32 * at.warp + at.lane, tile_row = at.first + at.first_row();
        if (own < 64 && tile_row < arguments.seq_len)
            arguments.bias.partials(at.sequence, tile_row)[head * Tile::kHeadDim + at.first_column() + own] =
                column_sum<64>(at.shared.columns(at.consumer), own);
    }
    if constexpr (at.kSplitRows) {
        if (!has_dot) return;
        __syncthreads();
        const int own = 32 * at.warp + at.lane;
        if (at.consumer == 0 && own < at.count)
            arguments.rope.dot[head * arguments.rope.dot_ld + at.token(own)] = at.whole(own);
    }
}

/// With a norm: the same back through it too, with the sums of dgain.
template <class Tile>
__device__ __forceinline__ void finish_normed_queries(const FinishArgumentsOf<Tile>& arguments,
                                                      const FinishThread<Tile>& at, const float2 (&angles)[2][8]) {
    const RopeBackwardArguments& rope = arguments.rope;
    const NormBackwardArguments& norm = arguments.norm;
    const auto gain = [&](int i) { return ptx::load_shared_pair(at.shared.gain() + (at.column() + 8 * i) * 4); };
    const auto row_of = [&](int half) {
        const std::int64_t token = at.token(at.row(half));
        return at.valid(half)
                   ? NormRow<Tile::kHeadDim>{half, norm.rho[at.head * norm.rho_ld + token], rope.factor(token)}
                   : NormRow<Tile::kHeadDim>{half, 0, 0};
    };
    const NormRow<Tile::kHeadDim> rows[2] = {row_of(0), row_of(1)};
    float gradient[32], share[2];
    float2 columns[8] = {};
    const auto begin = [&](int half) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float2 sum = at.sum(half, i);
            gradient[4 * i + 2 * half] = sum.x * arguments.scale;
            gradient[4 * i + 2 * half + 1] = sum.y * arguments.scale;
        }
        share[half] = rows[half].begin([&](int i) { return ptx::load_shared(at.pair(half, i)); }, gain,
                                       [&](int i) { return angles[half][i]; }, gradient);
        if constexpr (at.kSplitRows) at.put_half(half, share[half]);
    };
    const auto end = [&](int half) {
        const float sum = at.kSplitRows ? at.whole(at.row(half)) : share[half];
        rows[half].finish(
            sum, [&](int i) { return ptx::load_shared(at.pair(half, i)); }, gain, gradient, columns);
        if (at.valid(half) && at.lane % 4 == 0 && (!at.kSplitRows || at.consumer == 0))
            rope.dot[at.head * rope.dot_ld + at.token(at.row(half))] = rows[half].dot(sum, norm.eps);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            ptx::store_shared(at.pair(half, i), pack_bf16(gradient[4 * i + 2 * half], gradient[4 * i + 2 * half + 1]));
    };
    begin(0);
    if constexpr (!at.kSplitRows) end(0);
    begin(1);
    if constexpr (at.kSplitRows) {
        __syncthreads();
        end(0);
    }
    end(1);
    sum_over_rows(columns, at.lane);
    put_columns(columns, at.shared.columns(at.consumer), at.warp, at.lane);
    at.meet();
    const int own = 32 * at.warp + at.lane, tile_row = at.first + at.first_row();
    if (own >= 64 || tile_row >= arguments.seq_len) return;
    norm.dgain[norm.partial(at.head, at.sequence, tile_row) * Tile::kHeadDim + at.first_column() + own] =
        column_sum<64>(at.shared.columns(at.consumer), own);
}

template <class Tile>
__global__ void __launch_bounds__(kFinishDQueryThreads, FinishOrder<Tile>::kBlocks)
    attention_finish_dquery(const __grid_constant__ FinishArgumentsOf<Tile> arguments) {
    using Shared = FinishShared<Tile>;
    using Order = FinishOrder<Tile>;
    extern __shared__ __align__(kSwizzleAtomBytes) std::byte dynamic_shared[];
    const Shared shared(dynamic_shared);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
        for (int stage = 0; stage < Shared::kStages; ++stage) ptx::mbarrier_init(shared.full(stage), 1);
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(&arguments.rows);
        if constexpr (!Tile::kRounds) ptx::prefetch_tensor_map(&arguments.dqkv);
    }
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    if constexpr (Tile::kNorm)
        if (thread < Tile::kHeadDim / 2) {
            const float2 pair = arguments.norm.gain[thread];
            ptx::store_shared_words(shared.gain() + 8 * thread, {__float_as_uint(pair.x), __float_as_uint(pair.y)});
        }
    __syncthreads();
    const bool has_dot = arguments.rope.has_dot();
    const Order order{arguments};
    const int count = order.count();
    // Load the sums of a tile, and q or pre
    const auto load = [&](int index) {
        const FinishPlace place = order.at(index);
        const int stage = index % Shared::kStages;
        const std::int64_t tile = (static_cast<std::int64_t>(place.sequence) * arguments.heads + place.head) *
                                      (arguments.padded / Tile::kQueries) +
                                  place.tile;
        ptx::mbarrier_arrive_expect(shared.full(stage), Tile::kDQueryBytes + (has_dot ? Tile::kQueryBytes : 0));
        ptx::bulk_load(shared.dquery(stage), arguments.dquery + tile * (Tile::kDQueryBytes / 4), Tile::kDQueryBytes,
                       shared.full(stage));
        if (!has_dot) return;
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel)
            ptx::tma_load(shared.rows(stage) + panel * Tile::kQueryPanelBytes, &arguments.rows,
                          place.head * Tile::kHeadDim + 64 * panel, place.tile * Tile::kQueries, place.sequence,
                          shared.full(stage));
    };
    if (thread == 0)
        for (int index = 0; index < min(count, Shared::kStages); ++index) load(index);
    FinishThread<Tile> at{shared, thread / kWarpgroupThreads, thread / 32 % 4, thread % 32, arguments.seq_len};
    float2 angles[2][8] = {};
    for (int index = 0; index < count; ++index) {
        const FinishPlace place = order.at(index);
        at.stage = index % Shared::kStages;
        at.head = place.head;
        // NOTE: read again, so that no address made of it takes a register in the loop.
        if constexpr (Order::kPersistent) at.lane = ptx::thread_index() % 32;
        if (index % order.width() == 0) {
            at.sequence = place.sequence;
            at.first = place.tile * Tile::kQueries;
            at.count = min(Tile::kQueries, arguments.seq_len - at.first);
            // Load the angles of the thread's pairs, while the copies are in flight
            if (arguments.rope.rotates())
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    if (at.valid(half)) {
                        const float2* from = at.angles_at(arguments.rope, half);
#pragma unroll
                        for (int i = 0; i < 8; ++i) angles[half][i] = __ldg(from + 4 * i);
                    }
        }
        ptx::mbarrier_wait(shared.full(at.stage), index / Shared::kStages % 2);
        if constexpr (Tile::kNorm)
            finish_normed_queries<Tile>(arguments, at, angles);
        else
            finish_queries<Tile>(arguments, at, angles);
        // Store
        ptx::fence_async_shared();
        at.meet();
        const std::uint32_t staged = shared.rows(at.stage) + (at.kSplitRows ? at.consumer * Tile::kQueryPanelBytes : 0);
        const int column = at.head * Tile::kHeadDim + at.first_column();
        if constexpr (Tile::kRounds) {
            store_codes<DType::f8e5m2, 64, kWarpgroupThreads>(
                arguments.codes, static_cast<int>(at.token(at.first_row())), min(64, at.count - at.first_row()), column,
                thread % kWarpgroupThreads, PanelRows{staged, Tile::kQueryPanelBytes, at.first_row()});
        } else if (thread % kWarpgroupThreads == 0) {
            ptx::tma_store(&arguments.dqkv, staged + at.first_row() * kPanelRowBytes, column, at.first + at.first_row(),
                           at.sequence);
            ptx::tma_store_commit();
            ptx::tma_store_wait_read<0>();
        }
        // Load again once both consumers' rows have been read
        if constexpr (Order::kPersistent) {
            __syncthreads();
            if (thread == 0 && index + Shared::kStages < count) load(index + Shared::kStages);
        }
    }
}

}  // namespace coda::hopper
