// Backward attention with a bias of q, k and v (AttentionBackward with bias): what the tails of dK and dV leave out of
// dot, and sum by column.
#pragma once

#include "kernels/hopper/attention/backward_columns.cuh"
#include "kernels/hopper/attention/backward_producer.cuh"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper {

/// Two rows of a thread, as in accumulators: pair j of row `half` in elements 4 j + 2 half and the next one. Takes the
/// bias's share out of `dot`, the thread's shares of Σ qkv ⊙ gradient, adds up the quad's, and multiplies dot and
/// gradient by the rows' factors. `columns` gets a lane's sums over the warp's rows, without factors (sum_over_rows).
template <class Tile>
__device__ __forceinline__ void leave_out_bias(const BackwardArgumentsOf<Tile>& arguments, int qkv_head, int lane,
                                               const float (&factor)[2], float (&gradient)[Tile::kHeadDim / 2],
                                               float (&dot)[2], float2 (&columns)[Tile::kHeadDim / 8]) {
    const float2* bias = arguments.bias.bias + qkv_head * (Tile::kHeadDim / 2) + lane % 4;
#pragma unroll
    for (int j = 0; j < Tile::kHeadDim / 8; ++j) {
        const float2 own = __ldg(bias + 4 * j);
        columns[j] = {gradient[4 * j] + gradient[4 * j + 2], gradient[4 * j + 1] + gradient[4 * j + 3]};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float &first = gradient[4 * j + 2 * half], &second = gradient[4 * j + 2 * half + 1];
            dot[half] -= own.x * first + own.y * second;
            first *= factor[half];
            second *= factor[half];
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) dot[half] = factor[half] * quad_sum(dot[half]);
    sum_over_rows(columns, lane);
}

/// Adds up what the consumer's warps have put at `scratch` for one column, and stores it. The rows begin at position
/// `first`.
template <class Tile>
__device__ __forceinline__ void store_columns(const BackwardArgumentsOf<Tile>& arguments, int sequence, int first,
                                              int qkv_head, std::uint32_t scratch, int column) {
    if (column < Tile::kHeadDim && first < arguments.seq_len)
        arguments.bias.partials(sequence, first)[qkv_head * Tile::kHeadDim + column] =
            column_sum<Tile::kHeadDim>(scratch, column);
}

}  // namespace coda::hopper
