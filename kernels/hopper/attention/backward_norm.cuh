// Backward attention through the norm of q and k heads (AttentionBackward with gain): what the tails of dK and dQ
// share.
//
//   ẑ = rho z, dn: the gradient rotated back;  hd c = Σ gain ẑ dn;  dz = rho (gain dn - c ẑ)
//
// A row's c is needed before its first element, so a thread goes over its columns twice. In between, its quad adds its
// shares of hd c, and so do the consumers where they split a row.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/attention/backward_columns.cuh"
#include "kernels/hopper/attention/backward_producer.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/swizzle.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/math/rope.h"

namespace coda::hopper {

/// Two rows of a thread, with kBlocks blocks of 8 columns of a head, of which the thread has a pair each. Gradients lie
/// as in accumulators: pair j of row `half` in elements 4 j + 2 half and the next one.
template <int kHeadDim, int kBlocks>
class NormRows {
  public:
    /// `column`: of the thread's first pair in the head.
    __device__ NormRows(const NormBackwardArguments& norm, int qkv_head, bool keys, int column)
        : norm_(norm), head_(qkv_head), column_(column), gain_(norm.gain + ((keys ? kHeadDim : 0) + column) / 2) {}

    /// Turns a row back through RoPE, and returns the share of hd c of the quad's columns. `angles`: of the first pair.
    /// A row that is not valid must have gradients of 0, and keeps them.
    __device__ float begin(int half, std::int64_t token, bool valid, const float2* angles,
                           float (&gradient)[4 * kBlocks]) {
        rho_[half] = valid ? norm_.rho[head_ * norm_.rho_ld + token] : 0.0f;
        const __nv_bfloat16* from = norm_.pre + token * norm_.pre_ld + head_ * kHeadDim + column_;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            if (valid) {
                const float2 angle = __ldg(angles + 4 * j);
                const Pair<float> turned = unrotate_pair(Pair<float>{first, second}, angle.x, angle.y);
                first = turned.first;
                second = turned.second;
            }
            pre_[half][j] = valid ? *reinterpret_cast<const std::uint32_t*>(from + 8 * j) : 0;
            const float2 z = unpack_bf16(pre_[half][j]), weight = gain_[4 * j];
            sum += weight.x * z.x * first + weight.y * z.y * second;
        }
        return rho_[half] * quad_sum(sum);
    }

    /// dz times the row's rstd in place of dn, where `sum` is hd c; adds dn ẑ to the sums of columns.
    __device__ void finish(int half, float sum, float rstd, float (&gradient)[4 * kBlocks],
                           float2 (&columns)[kBlocks]) {
        const float c = sum / kHeadDim, factor = rho_[half] * rstd;
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            const float2 z = unpack_bf16(pre_[half][j]), weight = gain_[4 * j];
            const float2 normed = {rho_[half] * z.x, rho_[half] * z.y};
            columns[j].x = fmaf(first, normed.x, columns[j].x);
            columns[j].y = fmaf(second, normed.y, columns[j].y);
            first = factor * (weight.x * first - c * normed.x);
            second = factor * (weight.y * second - c * normed.y);
        }
    }

    /// Σ z dz of the row, with its rstd.
    __device__ float dot(int half, float sum, float rstd) const {
        return norm_.eps * rho_[half] * rho_[half] * sum * rstd;
    }

  private:
    const NormBackwardArguments& norm_;
    int head_, column_;
    const float2* gain_;
    std::uint32_t pre_[2][kBlocks];
    float rho_[2];
};

/// The tail of dK in a consumer of attention_backward, in place of its finish_rows: 64 keys, or fewer at the end of a
/// sequence. `scratch`: shared memory of the consumer for four rows of fp32 sums. Its threads meet at `barrier`.
template <class Tile>
__device__ __forceinline__ void finish_normed_keys(const BackwardArgumentsOf<Tile>& arguments, const BackwardWork& work,
                                                   const int (&key)[2], int warp, int lane, std::uint32_t scratch,
                                                   int barrier, float (&gradient)[Tile::kHeadDim / 2]) {
    constexpr int kHeadDim = Tile::kHeadDim, kBlocks = kHeadDim / 8;
    const RopeBackwardArguments& rope = arguments.rope;
    const NormBackwardArguments& norm = arguments.norm;
    const int qkv_head = arguments.heads + work.kv_head;
    NormRows<kHeadDim, kBlocks> rows(norm, qkv_head, true, 2 * (lane % 4));
    float2 columns[kBlocks] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const bool valid = key[half] < arguments.seq_len;
        const std::int64_t token = static_cast<std::int64_t>(work.sequence) * arguments.seq_len + key[half];
        const float2* angles = rope.rope + lane % 4;
        if (valid) angles += static_cast<std::int64_t>(__ldg(rope.positions + token)) * (kHeadDim / 2);
        const float rstd = valid ? rope.factor(token) : 0.0f;
        const float sum = rows.begin(half, token, valid, angles, gradient);
        rows.finish(half, sum, rstd, gradient, columns);
        if (valid && lane % 4 == 0) rope.dot[qkv_head * rope.dot_ld + token] = rows.dot(half, sum, rstd);
    }
    sum_over_rows(columns, lane);
    put_columns(columns, scratch, warp, lane);
    ptx::named_barrier_sync(barrier, kWarpgroupThreads);
    const int column = 32 * warp + lane, first = key[0] - Fragment::row(warp, lane, 0);
    if (column >= kHeadDim || first >= arguments.seq_len) return;
    norm.dgain[norm.partial(qkv_head, work.sequence, first) * kHeadDim + column] =
        column_sum<kHeadDim>(scratch, column);
}

/// The same for a query tile of attention_finish_dquery: sums of dQ to dQ in bf16, in rows of kPitch bytes. `halves`:
/// of hd c, where consumers split a row; `sums`: four rows of 64 columns for each consumer.
template <class Tile, int kPitch, class Arguments>
__device__ __forceinline__ void finish_normed_queries(const Arguments& arguments, std::int64_t token0, int first,
                                                      int head, int sequence, const float4 (&dquery)[8],
                                                      std::byte* rows_at, float (&halves)[Tile::kConsumers][64],
                                                      float (&sums)[Tile::kConsumers][4][64]) {
    constexpr int kHeadDim = Tile::kHeadDim;
    constexpr bool kSplitRows = kHeadDim == 128;
    const RopeBackwardArguments& rope = arguments.rope;
    const NormBackwardArguments& norm = arguments.norm;
    const int thread = static_cast<int>(threadIdx.x), count = min(Tile::kQueries, arguments.seq_len - first);
    const int consumer = thread / kWarpgroupThreads, warp = thread / 32 % 4, lane = thread % 32;
    const int first_row = kSplitRows ? 0 : 64 * consumer, column = (kSplitRows ? 64 * consumer : 0) + 2 * (lane % 4);
    NormRows<kHeadDim, 8> normed(norm, head, false, column);
    float gradient[32], share[2], rstd[2];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float4 sum = dquery[i];
        const float scaled[4] = {sum.x * arguments.scale, sum.y * arguments.scale, sum.z * arguments.scale,
                                 sum.w * arguments.scale};
#pragma unroll
        for (int j = 0; j < 4; ++j) gradient[4 * i + j] = scaled[j];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + Fragment::row(warp, lane, half);
        const bool valid = row < count;
        const float2* angles = rope.rope + column / 2;
        if (valid) angles += static_cast<std::int64_t>(__ldg(rope.positions + token0 + row)) * (kHeadDim / 2);
        rstd[half] = valid ? rope.factor(token0 + row) : 0.0f;
        share[half] = normed.begin(half, token0 + row, valid, angles, gradient);
        if (kSplitRows && lane % 4 == 0) halves[consumer][row] = share[half];
    }
    if constexpr (kSplitRows) __syncthreads();
    float2 columns[8] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + Fragment::row(warp, lane, half);
        const float sum = kSplitRows ? halves[0][row] + halves[1][row] : share[half];
        normed.finish(half, sum, rstd[half], gradient, columns);
        if (row < count && lane % 4 == 0 && (!kSplitRows || consumer == 0))
            rope.dot[head * rope.dot_ld + token0 + row] = normed.dot(half, sum, rstd[half]);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            *reinterpret_cast<std::uint32_t*>(rows_at + row * kPitch + (column + 8 * i) * 2) =
                pack_bf16(gradient[4 * i + 2 * half], gradient[4 * i + 2 * half + 1]);
    }
    sum_over_rows(columns, lane);
    put_columns(columns, sums[consumer][warp], lane);
    __syncthreads();
    const int own = thread % kWarpgroupThreads, tile_row = first + first_row;
    if (own >= 64 || tile_row >= arguments.seq_len) return;
    norm.dgain[norm.partial(head, sequence, tile_row) * kHeadDim + (kSplitRows ? 64 * consumer : 0) + own] =
        column_sum(sums[consumer], own);
}

}  // namespace coda::hopper
