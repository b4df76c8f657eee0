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

    /// Where the lane's row of fragment k16 lies in `panels`, which are K's, V's or like them.
    __device__ __forceinline__ std::uint32_t own_fragment(std::uint32_t panels, int k16) const {
        return fragment_address(panels, Tile::kKeyPanelBytes, 64 * consumer + 16 * warp, lane, k16);
    }
    /// Sums over this lane's columns of its rows of `operand` times their gradients.
    __device__ __forceinline__ void dot_parts(const float (&gradient)[Tile::kHeadDim / 2], std::uint32_t operand,
                                              float (&dot)[2]) const {
#pragma unroll
        for (int k16 = 0; k16 < Tile::kHeadDim / 16; ++k16) {
            std::uint32_t rows[4];
            ptx::load_matrix_x4(own_fragment(operand, k16), rows);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 value = unpack_bf16(rows[i]);
                dot[i % 2] += value.x * gradient[8 * k16 + 2 * i] + value.y * gradient[8 * k16 + 2 * i + 1];
            }
        }
    }

    /// With dot, what the tails of dK and dV need of the thread's keys. Loaded together: every load by itself would be
    /// waited for by itself.
    struct KeyRows {
        float factor[2];           // 0 beyond the sequence
        float rho[2];              // likewise, with a norm
        std::int32_t position[2];  // likewise
    };
    using Angles = float2[2][Tile::kHeadDim / 8];  // of the thread's pairs
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
                if constexpr (Tile::kNorm)
                    rows.rho[half] = __uint_as_float(ptx::load_ordered_word(
                        arguments.norm.rho + (arguments.heads + work.kv_head) * arguments.norm.rho_ld + token(half)));
            }
        return rows;
    }
    /// NOTE: without rope angles are 0, as what is not set on every way takes registers in the loop.
    __device__ __forceinline__ void load_angles(const KeyRows& rows, Angles& angles) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) angles[half][j] = {0, 0};
        if (!arguments.rope.rotates()) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float2* from =
                arguments.rope.rope + static_cast<std::int64_t>(rows.position[half]) * (Tile::kHeadDim / 2) + lane % 4;
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) angles[half][j] = ptx::load_ordered(&from[4 * j].x);
        }
    }
    /// With a norm: loads the consumer's rows of pre where its rows of K were. Both consumers have met after the last
    /// dQ.
    __device__ __forceinline__ void request_pre() const {
        if (warp != 0 || lane != 0) return;
        const int first = work.key_block * Tile::kKeys + 64 * consumer;
        ptx::mbarrier_arrive_expect(shared.pre_full(), Tile::kKeyBytes / 2);
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel)
            ptx::tma_load(shared.key() + panel * Tile::kKeyPanelBytes + consumer * 64 * kPanelRowBytes,
                          &arguments.norm.pre, (arguments.heads + work.kv_head) * Tile::kHeadDim + 64 * panel, first,
                          work.sequence, shared.pre_full());
    }
    __device__ __forceinline__ void release_keys() const {
        ptx::named_barrier_arrive(Barriers::kKeyEmpty, Barriers::kEmptyThreads);
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
        dot_parts(dv, shared.value(), dots.value);
        if constexpr (!Tile::kNorm) dot_parts(dk, shared.key(), dots.key);
        return dots;
    }
    /// With a bias, leaves its share out of dot, multiplies by the rows' rstd, and `columns` gets the sums.
    __device__ __forceinline__ void finish_dot(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows,
                                               float (&dot)[2], int qkv_head, [[maybe_unused]] Columns& columns) const {
        if (!arguments.rope.has_dot()) return;
        if constexpr (Tile::kBias) {
            leave_out_bias<Tile>(arguments, qkv_head, lane, rows.factor, gradient, dot, columns);
        } else {
            dot[0] = quad_sum(dot[0]);
            dot[1] = quad_sum(dot[1]);
        }
    }
    /// NOTE: after the gradient's store, whose fence would wait for it.
    __device__ __forceinline__ void put_dot(const float (&dot)[2], int qkv_head) const {
        if (!arguments.rope.has_dot()) return;
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
    __device__ __forceinline__ static void unrotate(float (&gradient)[Tile::kHeadDim / 2], const Angles& angles) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
                const float2 angle = angles[half][j];
                const int at = 4 * j + 2 * half;
                const Pair<float> turned = unrotate_pair(Pair<float>{gradient[at], gradient[at + 1]}, angle.x, angle.y);
                gradient[at] = turned.first;
                gradient[at + 1] = turned.second;
            }
    }

    /// The same, and back through the norm of heads, for which rows of pre come. `dot` gets the rows' dot, and
    /// `columns` the sums of dgain over the warp's rows.
    __device__ __forceinline__ void finish_norm(float (&gradient)[Tile::kHeadDim / 2], const KeyRows& rows,
                                                const Angles& angles, std::uint32_t parity, float (&dot)[2],
                                                Columns& columns) const {
        constexpr int kBlocks = Tile::kHeadDim / 8;
        const float2* from = arguments.norm.gain + Tile::kHeadDim / 2 + lane % 4;
        float2 gains[kBlocks];
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            gains[j] = __ldg(from + 4 * j);
            columns[j] = {0, 0};
        }
        std::uint32_t pairs[Tile::kHeadDim / 16][4];
        ptx::mbarrier_wait(shared.pre_full(), parity);
#pragma unroll
        for (int k16 = 0; k16 < Tile::kHeadDim / 16; ++k16)
            ptx::load_matrix_x4(own_fragment(shared.key(), k16), pairs[k16]);
        release_keys();
        const auto gain = [&](int j) { return gains[j]; };
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto pre = [&](int j) { return pairs[j / 2][2 * (j % 2) + half]; };
            const NormRow<Tile::kHeadDim> row{half, rows.rho[half], rows.factor[half]};
            const float sum = row.begin(
                pre, gain, [&](int j) { return angles[half][j]; }, gradient);
            row.finish(sum, pre, gain, gradient, columns);
            dot[half] = row.dot(sum, arguments.norm.eps);
        }
        sum_over_rows(columns, lane);
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
    /// after their last GEMM, and K and V have been read. `parity`: of pre.
    __device__ __forceinline__ void finish(float (&dk)[Tile::kHeadDim / 2], float (&dv)[Tile::kHeadDim / 2],
                                           const KeyRows& rows, const Angles& angles, Dots& dots,
                                           std::uint32_t parity) const {
        const int key_head = arguments.heads + work.kv_head, value_head = key_head + arguments.kv_heads;
        Columns columns;
        const std::uint32_t scratch = shared.columns(consumer), of_keys = scratch + 4 * Tile::kHeadDim * 4;
        finish_dot(dv, rows, dots.value, value_head, columns);
        if constexpr (Tile::kBias) put_columns(columns, scratch, warp, lane);
        store(dv, shared.staged_dvalue(), value_head);
        put_dot(dots.value, value_head);
        if constexpr (Tile::kNorm) {
            finish_norm(dk, rows, angles, parity, dots.key, columns);
            put_columns(columns, scratch, warp, lane);
        } else {
            const bool rotates = arguments.rope.rotates();
            if (Tile::kBias && rotates) unrotate(dk, angles);
            finish_dot(dk, rows, dots.key, key_head, columns);
            if (!Tile::kBias && rotates) unrotate(dk, angles);
            if constexpr (Tile::kBias) put_columns(columns, of_keys, warp, lane);
        }
        if constexpr (Tile::kNorm || Tile::kBias) {
            meet();
            const int first = work.key_block * Tile::kKeys + 64 * consumer, column = 32 * warp + lane;
            if constexpr (Tile::kBias) {
                store_columns<Tile>(arguments, work.sequence, first, key_head, of_keys, column);
                store_columns<Tile>(arguments, work.sequence, first, value_head, scratch, column);
            } else if (column < Tile::kHeadDim && first < arguments.seq_len) {
                arguments.norm.dgain[arguments.norm.partial(key_head, work.sequence, first) * Tile::kHeadDim + column] =
                    column_sum<Tile::kHeadDim>(scratch, column);
            }
            if constexpr (Tile::kStagesOverValues) meet();  // the sums lie where dK is staged
        }
        store(dk, shared.staged_dkey(), key_head);
        put_dot(dots.key, key_head);
        if constexpr (Tile::kStagesOverValues) {
            if (warp == 0 && lane == 0) ptx::tma_store_wait_read<1>();  // dV
            __syncwarp();
            ptx::named_barrier_arrive(Barriers::kValueEmpty, Barriers::kEmptyThreads);
        }
    }
};

}  // namespace coda::hopper
