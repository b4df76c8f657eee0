// Backward attention through the norm of q and k heads (AttentionBackward with gain): what dQ and dK share, and the
// tail of dK.
//
//   ẑ = rho z, dn: the gradient rotated back;  hd c = Σ gain ẑ dn;  dz = rho (gain dn - c ẑ)
//
// A row's c is needed before its first element, so a thread goes over its columns twice. In between, its quad adds its
// shares of hd c, and so do the consumers where they split a row.
#pragma once

#include "kernels/hopper/attention/backward_columns.cuh"
#include "kernels/hopper/attention/backward_producer.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/swizzle.h"
#include "kernels/hopper/sm90/warp.cuh"
#include "kernels/math/rope.h"

namespace coda::hopper {

/// Two rows of a thread, with kBlocks blocks of 8 columns of a head, of which the thread has a pair each. Gradients lie
/// as in accumulators: pair j of row `half` in elements 4 j + 2 half and the next one. `gain`: of the thread's first
/// pair.
template <int kHeadDim, int kBlocks>
struct NormRows {
    std::uint32_t pre[2][kBlocks];  // the pairs of z
    float rho[2];                   // 0 beyond the sequence

    /// Turns a row back through RoPE by the angles of its pairs, and returns the share of hd c of the quad's columns. A
    /// row beyond the sequence must have gradients of 0.
    __device__ float begin(int half, const float2 (&angles)[kBlocks], const float2* gain,
                           float (&gradient)[4 * kBlocks]) const {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            const Pair<float> turned = unrotate_pair(Pair<float>{first, second}, angles[j].x, angles[j].y);
            first = turned.first;
            second = turned.second;
            const float2 z = unpack_bf16(pre[half][j]), weight = gain[4 * j];
            sum += weight.x * z.x * first + weight.y * z.y * second;
        }
        return rho[half] * quad_sum(sum);
    }

    /// dz times the row's rstd in place of dn, where `sum` is hd c; adds dn ẑ to the sums of columns.
    __device__ void finish(int half, float sum, float rstd, const float2* gain, float (&gradient)[4 * kBlocks],
                           float2 (&columns)[kBlocks]) const {
        const float c = sum / kHeadDim, factor = rho[half] * rstd;
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            const float2 z = unpack_bf16(pre[half][j]), weight = gain[4 * j];
            const float2 normed = {rho[half] * z.x, rho[half] * z.y};
            columns[j].x = fmaf(first, normed.x, columns[j].x);
            columns[j].y = fmaf(second, normed.y, columns[j].y);
            first = factor * (weight.x * first - c * normed.x);
            second = factor * (weight.y * second - c * normed.y);
        }
    }

    /// Σ z dz of the row, with its rstd.
    __device__ float dot(int half, float sum, float rstd, float eps) const {
        return eps * rho[half] * rho[half] * sum * rstd;
    }
};

/// The tail of dK in a consumer of attention_backward: 64 keys, or fewer at the end of a sequence, with the angles of
/// the thread's pairs and factors rstd. `first_key`: of the thread, whose other key is 8 later. `scratch`: shared
/// memory of the consumer for four rows of fp32 sums. Its threads meet at `barrier`.
template <class Tile>
__device__ __forceinline__ void finish_normed_keys(const BackwardArgumentsOf<Tile>& arguments, const BackwardWork& work,
                                                   int first_key, int warp, int lane, std::uint32_t scratch,
                                                   int barrier,
                                                   const NormRows<Tile::kHeadDim, Tile::kHeadDim / 8>& rows,
                                                   const float2 (&angles)[2][Tile::kHeadDim / 8],
                                                   const float (&rstd)[2], float (&gradient)[Tile::kHeadDim / 2]) {
    constexpr int kHeadDim = Tile::kHeadDim, kBlocks = kHeadDim / 8;
    const RopeBackwardArguments& rope = arguments.rope;
    const NormBackwardArguments& norm = arguments.norm;
    const int qkv_head = arguments.heads + work.kv_head;
    const float2* gain = norm.gain + kHeadDim / 2 + lane % 4;
    float2 columns[kBlocks] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int key = first_key + 8 * half;
        const float sum = rows.begin(half, angles[half], gain, gradient);
        rows.finish(half, sum, rstd[half], gain, gradient, columns);
        if (key < arguments.seq_len && lane % 4 == 0)
            rope.dot[qkv_head * rope.dot_ld + static_cast<std::int64_t>(work.sequence) * arguments.seq_len + key] =
                rows.dot(half, sum, rstd[half], norm.eps);
    }
    sum_over_rows(columns, lane);
    put_columns(columns, scratch, warp, lane);
    ptx::named_barrier_sync(barrier, kWarpgroupThreads);
    const int column = 32 * warp + lane, first = first_key - Fragment::row(warp, lane, 0);
    if (column >= kHeadDim || first >= arguments.seq_len) return;
    norm.dgain[norm.partial(qkv_head, work.sequence, first) * kHeadDim + column] =
        column_sum<kHeadDim>(scratch, column);
}

}  // namespace coda::hopper
