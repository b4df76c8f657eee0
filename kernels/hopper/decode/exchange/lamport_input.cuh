// A consumer warp's input as Lamport buffers: it loads its slices of all sequences in the order of the MMAs' operands,
// each lane what it will multiply, as soon as all of it is there. Device.
#pragma once

#include "kernels/hopper/decode/exchange/arrivals.cuh"
#include "kernels/hopper/decode/exchange/input.cuh"
#include "kernels/hopper/decode/plan/input_share.h"

namespace coda::hopper::decode {

/// kEmpty if any of the vector's numbers is: no number is larger. A comparison of each would be a branch of each, at
/// which lanes diverge.
__device__ __forceinline__ std::uint32_t largest_of(const uint4& vector) {
    static_assert(kEmpty == 0xffffffffu);
    return max(__vimax3_u32(vector.x, vector.y, vector.z), vector.w);
}
__device__ __forceinline__ bool has_empty(const uint4& vector) { return largest_of(vector) == kEmpty; }

/// Blocks of a slice, of all sequences, that a warp polls. More would be too many bytes.
inline constexpr int kPolledBlocks = 4 * kSliceBlocks;

/// Copies slice `slice` to a warp's input at `to`, sequences kInputPitch bytes apart. Lanes without a sequence, and
/// sequences without input, copy nothing; columns behind the last count as 0. One warp takes the octets one by one,
/// with kAtOnce loads per lane on their way. Where the wait may be long, the warp first polls only the first 16 bytes
/// per lane.
template <int kAtOnce>
__device__ __forceinline__ void fetch_lamport(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                              int slice, const OctetRange& octets, char* to, const WorkItem& item,
                                              bool may_be_long) {
    static_assert(kLamportVectors % kAtOnce == 0 && kAtOnce % 2 == 0);
    const int begin = octets.first * kLamportVectors, end = octets.end * kLamportVectors;
    const char* from =
        ctx.lamport_of(input_of(ctx.arguments.exchange, op.kind).lamport, ctx.buffer_of(item.step, item.op - 1)) +
        (std::int64_t{slice} * ctx.octets + octets.first) * kLamportSliceBytes + ctx.lane * kVectorBytes;
#pragma unroll 1
    for (int first = begin; first < end; first += kAtOnce) {
        const int sequence = first / kLamportVectors * kOctet + lane_row(ctx.lane);
        const int first_block = first % kLamportVectors / 2;
        const bool wanted = sequence < ctx.shape().batch && has_input(ctx, op, sequence);
        // Columns from the lane's first on.
        const int columns =
            wanted ? slices.columns_of(slice, op.columns) - lane_column(ctx.lane) - first_block * kBlockColumns : 0;
        uint4 vectors[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) vectors[u] = uint4{u / 2 * kBlockColumns < columns ? kEmpty : 0, 0, 0, 0};
        if (may_be_long && first == begin && ctx.shape().batch * slices.most > kPolledBlocks)
            ctx.watchdog.wait_together(item, Awaited::input, [&] {
                ptx::load_numbers(vectors[0], from, has_empty(vectors[0]));
                return !has_empty(vectors[0]);
            });
        ctx.watchdog.wait_together(item, Awaited::input, [&] {
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u)
                ptx::load_numbers(vectors[u], from + u * 32 * kVectorBytes, has_empty(vectors[u]));
            std::uint32_t largest = 0;
#pragma unroll
            for (int u = 0; u < kAtOnce; u += 2)
                largest = __vimax3_u32(largest, largest_of(vectors[u]), largest_of(vectors[u + 1]));
            return largest != kEmpty;
        });
        from += kAtOnce * 32 * kVectorBytes;
        __syncwarp();  // all have used what is there
        char* own = to + sequence * kInputPitch + 2 * lane_column(ctx.lane) + first_block * kBlockRowBytes;
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u)
            if (wanted) *reinterpret_cast<uint4*>(own + u / 2 * kBlockRowBytes + u % 2 * kVectorBytes) = vectors[u];
        __syncwarp();
    }
}

/// Lane b returns the sum of the squares of sequence b's `columns`, added in SliceFetch's order.
__device__ __forceinline__ float lamport_squares(const WarpContext& ctx, const char* lamport, int columns) {
    constexpr int kLoads = kSliceColumns / 4 / 32;
    float own = 0;
#pragma unroll 2
    for (int b = 0; b < ctx.shape().batch; ++b) {
        float square = 0;
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
            const int four = ctx.lane + 32 * u;
            if (four >= columns / 4) continue;
            const uint2 pair = *reinterpret_cast<const uint2*>(lamport + b * kInputPitch + 8 * four);
            square += square_sum(pair.x) + square_sum(pair.y);
        }
        const float sum = warp_sum(square);
        if (ctx.lane == b) own = sum;
    }
    return own;
}

}  // namespace coda::hopper::decode
