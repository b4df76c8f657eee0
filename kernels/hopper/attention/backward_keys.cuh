// The 64 keys of a consumer warpgroup of attention_backward with their values: how their gradients are finished and
// stored. The whole is described in backward.cuh.
#pragma once

#include "kernels/hopper/attention/backward_bias.cuh"
#include "kernels/hopper/attention/backward_norm.cuh"
#include "kernels/hopper/attention/backward_producer.cuh"
#include "kernels/hopper/attention/fragments.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/math/rope.h"

namespace coda::hopper {

template <class Tile>
struct BackwardKeys {
    using Barriers = BackwardNamedBarriers<Tile>;
    using Columns = float2[Tile::kHeadDim / 8];  // sums of a thread's columns

    const BackwardArgumentsOf<Tile>& arguments;
    const BackwardShared<Tile>& shared;
    const BackwardWork& work;
    int consumer, warp, lane;
    int key[2];  // keys of this thread

    /// Sum over this lane's columns of row `row` of `operand` times its gradient.
    __device__ __forceinline__ float dot_part(const float (&gradient)[Tile::kHeadDim / 2], std::uint32_t operand,
                                              int row, int half) const {
        float dot = 0;
#pragma unroll
        for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
            const float2 value =
                unpack_bf16(ptx::load_shared(operand + j / 8 * Tile::kKeyPanelBytes +
                                             swizzled_offset(row, 16 * (j % 8) + 4 * (lane % 4), kPanelRowBytes)));
            dot += value.x * gradient[4 * j + 2 * half] + value.y * gradient[4 * j + 2 * half + 1];
        }
        return dot;
    }

    /// With rope, what the tails of dK and dV need of the thread's keys. Loaded once and together: every load by itself
    /// would be waited for by itself.
    struct KeyRows {
        float factor[2];           // 0 beyond the sequence
        std::int32_t position[2];  // 0 beyond the sequence
    };
    __device__ __forceinline__ KeyRows key_rows() const {
        const RopeBackwardArguments& rope = arguments.rope;
        KeyRows rows{};
        if (rope.positions == nullptr) return rows;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (key[half] < arguments.seq_len) {
                rows.factor[half] = rope.factor(token(half));
                rows.position[half] = __ldg(rope.positions + token(half));
            }
        return rows;
    }
    __device__ __forceinline__ std::int64_t token(int half) const {
        return static_cast<std::int64_t>(work.sequence) * arguments.seq_len + key[half];
    }

    /// Rotates a gradient's rows back through RoPE.
    __device__ __forceinline__ void unrotate(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2* angles =
                arguments.rope.rope + static_cast<std::int64_t>(rows.position[half]) * (Tile::kHeadDim / 2);
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                const float2 angle = __ldg(angles + 4 * j + lane % 4);
                const int at = 4 * j + 2 * half;
                const Pair<float> turned = unrotate_pair(Pair<float>{gradient[at], gradient[at + 1]}, angle.x, angle.y);
                gradient[at] = turned.first;
                gradient[at + 1] = turned.second;
            }
        }
    }

    /// With rope: multiplies a gradient by the rows' rstd, writes each row's share of dot, and rotates the rows back.
    __device__ __forceinline__ void finish_rows(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows,
                                                std::uint32_t operand, int qkv_head, bool rotated) const {
        const RopeBackwardArguments& rope = arguments.rope;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 64 * consumer + Fragment::row(warp, lane, half);
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                gradient[4 * j + 2 * half] *= rows.factor[half];
                gradient[4 * j + 2 * half + 1] *= rows.factor[half];
            }
            const float dot = quad_sum(dot_part(gradient, operand, row, half));
            if (key[half] < arguments.seq_len && lane % 4 == 0) rope.dot[qkv_head * rope.dot_ld + token(half)] = dot;
        }
        if (rotated) unrotate(gradient, rows);
    }

    /// finish_rows with a bias.
    __device__ __forceinline__ void finish_biased_rows(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows,
                                                       std::uint32_t operand, int qkv_head, bool rotated,
                                                       Columns& columns) const {
        float dot[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            dot[half] = dot_part(gradient, operand, 64 * consumer + Fragment::row(warp, lane, half), half);
        if (rotated) unrotate(gradient, rows);
        leave_out_bias<Tile>(arguments, qkv_head, lane, rows.factor, gradient, dot, columns);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (key[half] < arguments.seq_len && lane % 4 == 0)
                arguments.rope.dot[qkv_head * arguments.rope.dot_ld + token(half)] = dot[half];
    }
    /// Shared memory for the sums of dK or dV by column.
    __device__ __forceinline__ std::uint32_t columns_at(bool keys) const {
        return shared.query(0) + (2 * consumer + (keys ? 1 : 0)) * 4 * Tile::kHeadDim * 4;
    }

    /// Stores dK or dV over the operand it belongs to: `operand` still holds the keys or values themselves. `qkv_head`
    /// counts heads along a row of dqkv: query heads, then key heads, then value heads. With a bias, `columns` gets the
    /// sums of dV, and is stored with those of dK.
    __device__ __forceinline__ void store(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows,
                                          std::uint32_t operand, int qkv_head, bool rotated,
                                          [[maybe_unused]] Columns& columns) {
        // NOTE: with dK, Q is free: both consumers have met after their last GEMM.
        if (Tile::kNorm && rotated) {
            if constexpr (Tile::kNorm)
                finish_normed_keys<Tile>(arguments, work, key, warp, lane,
                                         shared.query(0) + consumer * 4 * Tile::kHeadDim * 4,
                                         Barriers::kStore + consumer, gradient);
        } else if constexpr (Tile::kBias) {
            if (rotated) put_columns(columns, columns_at(false), warp, lane);
            finish_biased_rows(gradient, rows, operand, qkv_head, rotated, columns);
            if (rotated) put_columns(columns, columns_at(true), warp, lane);
        } else if (arguments.rope.positions != nullptr) {
            finish_rows(gradient, rows, operand, qkv_head, rotated);
        }
        // Round, stage in shared memory
        std::uint32_t rounded[Tile::kHeadDim / 16][4];
        round_fragments(gradient, rounded);
        __syncwarp();
        store_fragments(operand, Tile::kKeyPanelBytes, 64 * consumer + 16 * warp, lane, rounded);
        ptx::fence_async_shared();
        ptx::named_barrier_sync(Barriers::kStore + consumer, kWarpgroupThreads);
        if constexpr (Tile::kRounds) {
            const int first = work.key_block * Tile::kKeys + 64 * consumer;
            store_codes<DType::f8e5m2, Tile::kHeadDim, kWarpgroupThreads>(
                arguments.codes, work.sequence * arguments.seq_len + first, min(64, arguments.seq_len - first),
                qkv_head * Tile::kHeadDim, 32 * warp + lane, PanelRows{operand, Tile::kKeyPanelBytes, 64 * consumer});
        } else if (warp == 0 && lane == 0) {
            // TMA store of the consumer's keys
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_store(&arguments.dqkv, operand + panel * Tile::kKeyPanelBytes + consumer * 64 * kPanelRowBytes,
                               qkv_head * Tile::kHeadDim + 64 * panel, work.key_block * Tile::kKeys + 64 * consumer,
                               work.sequence);
            ptx::tma_store_commit();
        }
        if constexpr (Tile::kBias) {
            if (!rotated) return;
            const int first = key[0] - Fragment::row(warp, lane, 0), thread = 32 * warp + lane;
            store_columns<Tile>(arguments, work.sequence, first, qkv_head, columns_at(true), thread);
            store_columns<Tile>(arguments, work.sequence, first, qkv_head + arguments.kv_heads, columns_at(false),
                                thread);
        }
    }
};

}  // namespace coda::hopper
