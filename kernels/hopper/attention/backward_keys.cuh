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
    BackwardWork work;
    int consumer, warp, lane;

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

    /// With dot, what the tails of dK and dV need of the thread's keys. Loaded early and together: every load by itself
    /// would be waited for by itself.
    struct KeyRows {
        float factor[2];           // 0 beyond the sequence
        std::int32_t position[2];  // 0 beyond the sequence
    };
    struct Nothing {};
    /// What dK is finished with, of the thread's pairs.
    struct KeyInputs {
        float2 angles[2][Tile::kHeadDim / 8];
        std::conditional_t<Tile::kNorm, NormRows<Tile::kHeadDim, Tile::kHeadDim / 8>, Nothing> normed;
    };
    /// NOTE: by ordered loads, as the compiler would move others down to where they are needed.
    __device__ __forceinline__ KeyRows key_rows() const {
        const RopeBackwardArguments& rope = arguments.rope;
        KeyRows rows{};
        if (!rope.has_dot()) return rows;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (inside(half)) {
                rows.factor[half] =
                    rope.rstd != nullptr ? __uint_as_float(ptx::load_ordered_word(rope.rstd + token(half))) : 1.0f;
                if (rope.rotates())
                    rows.position[half] =
                        static_cast<std::int32_t>(ptx::load_ordered_word(rope.positions + token(half)));
            }
        return rows;
    }
    /// NOTE: without rope angles are 0, as what is not set on every way takes registers in the loop.
    __device__ __forceinline__ void load_inputs(const KeyRows& rows, KeyInputs& inputs) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) inputs.angles[half][j] = {0, 0};
        if (!Tile::kNorm && !arguments.rope.rotates()) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2* angles =
                arguments.rope.rope + static_cast<std::int64_t>(rows.position[half]) * (Tile::kHeadDim / 2) + lane % 4;
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) inputs.angles[half][j] = __ldg(angles + 4 * j);
            if constexpr (Tile::kNorm) {
                const NormBackwardArguments& norm = arguments.norm;
                const int head = arguments.heads + work.kv_head;
                const __nv_bfloat16* pre =
                    norm.pre + token(half) * norm.pre_ld + head * Tile::kHeadDim + 2 * (lane % 4);
                inputs.normed.rho[half] = inside(half) ? norm.rho[head * norm.rho_ld + token(half)] : 0.0f;
#pragma unroll
                for (int j = 0; j < Tile::kHeadDim / 8; ++j)
                    inputs.normed.pre[half][j] =
                        inside(half) ? *reinterpret_cast<const std::uint32_t*>(pre + 8 * j) : 0;
            }
        }
    }
    /// The keys of this thread.
    __device__ __forceinline__ int key(int half) const {
        return work.key_block * Tile::kKeys + 64 * consumer + Fragment::row(warp, lane, half);
    }
    __device__ __forceinline__ bool inside(int half) const { return key(half) < arguments.seq_len; }
    __device__ __forceinline__ std::int64_t token(int half) const {
        return static_cast<std::int64_t>(work.sequence) * arguments.seq_len + key(half);
    }

    /// This warp's arrival at a barrier, for all that its lanes have read.
    __device__ __forceinline__ void release(std::uint32_t barrier) const {
        if (lane == 0) ptx::mbarrier_arrive(barrier);
    }
    /// Meets the other threads of the consumer.
    __device__ __forceinline__ void meet() const {
        ptx::named_barrier_sync(Barriers::kStore + consumer, kWarpgroupThreads);
    }

    /// What K and V are needed for after the GEMMs: scales dK, and with dot multiplies dK and dV by the rows' rstd and
    /// adds up the thread's shares of dot. With a bias, rstd comes later; with a norm of heads, dK's dot too.
    struct Dots {
        float key[2], value[2];
    };
    __device__ __forceinline__ Dots take_dots(float (&dk)[Tile::kHeadDim / 2], float (&dv)[Tile::kHeadDim / 2],
                                              const KeyRows& rows) const {
#pragma unroll
        for (float& value : dk) value *= arguments.scale;
        Dots dots{};
        if (!arguments.rope.has_dot()) return dots;
        if constexpr (!Tile::kBias) scale_rows(dv, rows.factor);
        if constexpr (!Tile::kBias && !Tile::kNorm) scale_rows(dk, rows.factor);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 64 * consumer + Fragment::row(warp, lane, half);
            dots.value[half] = dot_part(dv, shared.value(), row, half);
            if constexpr (!Tile::kNorm) dots.key[half] = dot_part(dk, shared.key(), row, half);
        }
        return dots;
    }
    /// With a bias, leaves its share out of dot, multiplies by the rows' rstd, and `columns` gets the sums. Writes dot.
    __device__ __forceinline__ void finish_dot(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows,
                                               float (&dot)[2], int qkv_head, [[maybe_unused]] Columns& columns) const {
        if (!arguments.rope.has_dot()) return;
        if constexpr (Tile::kBias) {
            leave_out_bias<Tile>(arguments, qkv_head, lane, rows.factor, gradient, dot, columns);
        } else {
            dot[0] = quad_sum(dot[0]);
            dot[1] = quad_sum(dot[1]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (inside(half) && lane % 4 == 0)
                arguments.rope.dot[qkv_head * arguments.rope.dot_ld + token(half)] = dot[half];
    }
    __device__ __forceinline__ static void scale_rows(float (&gradient)[Tile::kHeadDim / 2], const float (&factor)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                gradient[4 * j + 2 * half] *= factor[half];
                gradient[4 * j + 2 * half + 1] *= factor[half];
            }
    }
    /// Rotates a gradient's rows back through RoPE.
    __device__ __forceinline__ static void unrotate(float (&gradient)[Tile::kHeadDim / 2], const KeyInputs& inputs) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                const float2 angle = inputs.angles[half][j];
                const int at = 4 * j + 2 * half;
                const Pair<float> turned = unrotate_pair(Pair<float>{gradient[at], gradient[at + 1]}, angle.x, angle.y);
                gradient[at] = turned.first;
                gradient[at + 1] = turned.second;
            }
    }

    /// Rounds dK or dV, stages it at `staged` and stores it. `qkv_head` counts heads along a row of dqkv: query heads,
    /// then key heads, then value heads.
    __device__ __forceinline__ void store(const float (&gradient)[Tile::kHeadDim / 2], std::uint32_t staged,
                                          int qkv_head) const {
        std::uint32_t rounded[Tile::kHeadDim / 16][4];
        round_fragments(gradient, rounded);
        store_fragments(staged, Tile::kKeyPanelBytes, 64 * consumer + 16 * warp, lane, rounded);
        ptx::fence_async_shared();
        meet();
        const int first = work.key_block * Tile::kKeys + 64 * consumer;
        if constexpr (Tile::kRounds) {
            store_codes<DType::f8e5m2, Tile::kHeadDim, kWarpgroupThreads>(
                arguments.codes, work.sequence * arguments.seq_len + first, min(64, arguments.seq_len - first),
                qkv_head * Tile::kHeadDim, 32 * warp + lane, PanelRows{staged, Tile::kKeyPanelBytes, 64 * consumer});
        } else if (warp == 0 && lane == 0) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_store(&arguments.dqkv, staged + panel * Tile::kKeyPanelBytes + consumer * 64 * kPanelRowBytes,
                               qkv_head * Tile::kHeadDim + 64 * panel, first, work.sequence);
            ptx::tma_store_commit();
        }
    }

    /// The ends of dK and dV: what the model's form of q, k and v asks for, and the stores. Both consumers have met
    /// after their last GEMM, and K and V have been read.
    __device__ __forceinline__ void finish(float (&dk)[Tile::kHeadDim / 2], float (&dv)[Tile::kHeadDim / 2],
                                           const KeyRows& rows, KeyInputs& inputs, Dots& dots) const {
        const int key_head = arguments.heads + work.kv_head, value_head = key_head + arguments.kv_heads;
        Columns columns;
        const std::uint32_t scratch = shared.columns(consumer), of_keys = scratch + 4 * Tile::kHeadDim * 4;
        finish_dot(dv, rows, dots.value, value_head, columns);
        if constexpr (Tile::kBias) put_columns(columns, scratch, warp, lane);
        store(dv, shared.staged_dvalue(), value_head);
        if constexpr (!Tile::kEarlyInputs) load_inputs(rows, inputs);
        if constexpr (Tile::kNorm) {
            finish_normed_keys<Tile>(arguments, work, key(0), warp, lane, scratch, Barriers::kStore + consumer,
                                     inputs.normed, inputs.angles, rows.factor, dk);
        } else {
            const bool rotates = arguments.rope.rotates();
            if (Tile::kBias && rotates) unrotate(dk, inputs);
            finish_dot(dk, rows, dots.key, key_head, columns);
            if (!Tile::kBias && rotates) unrotate(dk, inputs);
        }
        if constexpr (Tile::kBias) {
            put_columns(columns, of_keys, warp, lane);
            meet();
            const int first = work.key_block * Tile::kKeys + 64 * consumer, thread = 32 * warp + lane;
            store_columns<Tile>(arguments, work.sequence, first, key_head, of_keys, thread);
            store_columns<Tile>(arguments, work.sequence, first, value_head, scratch, thread);
        }
        if ((Tile::kNorm || Tile::kBias) && Tile::kStagesOverValues) meet();  // sums lie where dK is staged
        store(dk, shared.staged_dkey(), key_head);
        if constexpr (Tile::kStagesOverValues) {
            if (warp == 0 && lane == 0) ptx::tma_store_wait_read<1>();  // dV
            __syncwarp();
            ptx::named_barrier_arrive(Barriers::kValueEmpty, Barriers::kEmptyThreads);
        }
    }
};

}  // namespace coda::hopper
