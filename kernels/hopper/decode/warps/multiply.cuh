// The products of a k-tile: 16 rows of weights, in either format, times the inputs of all sequences. Device.
#pragma once

#include "kernels/hopper/decode/plan/decode_plan.h"
#include "kernels/hopper/ptx/int4.cuh"
#include "kernels/hopper/ptx/mma.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"

namespace coda::hopper::decode {

/// Of eight sequences four sums, so that an MMA need not wait for the one before. They are added in order at the end.
struct Sums {
    float of[4][4] = {};

    __device__ float total(int i) const { return of[0][i] + of[1][i] + of[2][i] + of[3][i]; }
};

__device__ __forceinline__ uint4 load_vector(const char* from) { return *reinterpret_cast<const uint4*>(from); }

/// A lane's columns of inputs in shared memory, one of every eight sequences. Where it does not exist, or does not
/// count, it is not `live`.
template <int kOctets>
struct LaneColumns {
    const char* first;
    int apart;  // bytes from one to the next
    bool live[kOctets];
};

/// Adds 16 rows times the lanes' columns of inputs; both in shared memory. A column that is not live counts as 0. One
/// warp; the loads of two blocks are on their way at a time.
template <int kOctets>
__device__ __forceinline__ void multiply(Sums (&sums)[kOctets], const LaneRows& rows,
                                         const LaneColumns<kOctets>& columns, int blocks) {
#pragma unroll 2
    for (int block = 0; block < blocks; ++block) {
        const char *first = rows.first + block * rows.block, *second = rows.second + block * rows.block;
        const uint4 a = load_vector(first), c = load_vector(second), e = load_vector(first + rows.far),
                    g = load_vector(second + rows.far);
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
            const char* input = columns.first + o * columns.apart + block * kBlockRowBytes;
            const bool live = columns.live[o];
            const uint4 b = live ? load_vector(input) : uint4{}, d = live ? load_vector(input + 16) : uint4{};
            ptx::mma_m16n8k16(sums[o].of[0], a.x, e.x, a.y, e.y, b.x, b.y);
            ptx::mma_m16n8k16(sums[o].of[1], a.z, e.z, a.w, e.w, b.z, b.w);
            ptx::mma_m16n8k16(sums[o].of[2], c.x, g.x, c.y, g.y, d.x, d.y);
            ptx::mma_m16n8k16(sums[o].of[3], c.z, g.z, c.w, g.w, d.z, d.w);
        }
    }
}

/// A slice of the inputs as fixed-point pieces, of all sequences.
struct PieceSlice {
    const char* first;        // in shared memory, of sequence 0
    int batch;                // sequences
    std::uint32_t has_input;  // a bit for each; others count as 0
};

/// The sums of an MMA of 8-bit integers: of rows r and r + 8 the high and the low pieces' of a sequence each.
struct IntegerSums {
    int of[4] = {};

    /// 128 columns' sums are below 2^29. far: of row r + 8.
    __device__ float total(int far) const { return static_cast<float>(256 * of[2 * far] + of[2 * far + 1]); }
};

/// The same of units of 4-bit integers, which lie one behind the other. A unit's sums are exact. They are multiplied by
/// the scales of row and input: its numbers times scales would have to be rounded, and there are 16 times as many.
/// kMmas: one per four sequences. Element i of an octet's sums.of[0] is of its integer_result_sequence(lane, i).
template <int kMmas, int kOctets>
__device__ __forceinline__ void multiply_units(Sums (&sums)[kOctets], const char* units, int lane,
                                               const PieceSlice& input, int number) {
    static_assert(kOctet == 2 * kPieceSequences && kMmas <= 2 * kOctets);
    const char* own = units + 16 * lane;
    const char* own_scales = units + 4 * kInt4CodeWords + lane_row(lane) * 4;
    const char *columns[kMmas][2], *inputs_scale[kMmas];
    bool live[kMmas];
#pragma unroll
    for (int m = 0; m < kMmas; ++m) {
        // Lanes without a sequence take the last one's. Their results are not used.
        const auto slice_of = [&](int sequence) {
            return input.first + min(sequence + m * kPieceSequences, input.batch - 1) * kInputPitch;
        };
        const char* slice = slice_of(piece_sequence(lane));
        for (int half = 0; half < 2; ++half)
            columns[m][half] = slice + piece_offset(lane_part(lane, half), has_low_piece(lane));
        inputs_scale[m] = slice_of(integer_result_sequence(lane, 0)) + kScalesOffset;
        live[m] = (input.has_input >> (integer_result_sequence(lane, 0) + m * kPieceSequences) & 1u) != 0;
    }
#pragma unroll(kMmas == 1 ? 2 : 1)  // either one otherwise: 1% slower
    for (int unit = 0; unit < number; ++unit) {
        const float2 scales = unpack_bf16(*reinterpret_cast<const std::uint32_t*>(own_scales + unit * kUnitBytes));
        IntegerSums of_unit[kMmas];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint4 codes = load_vector(own + unit * kUnitBytes + half * 32 * 16);
#pragma unroll
            for (int m = 0; m < kMmas; ++m) {
                const uint4 b = load_vector(columns[m][half] + unit * kUnitInputBytes);
                ptx::mma_m16n8k32(of_unit[m].of, ptx::low_codes(codes.x), ptx::high_codes(codes.x),
                                  ptx::low_codes(codes.y), ptx::high_codes(codes.y), b.x, b.y);
                ptx::mma_m16n8k32(of_unit[m].of, ptx::low_codes(codes.z), ptx::high_codes(codes.z),
                                  ptx::low_codes(codes.w), ptx::high_codes(codes.w), b.z, b.w);
            }
        }
#pragma unroll
        for (int m = 0; m < kMmas; ++m) {
            const float scale = live[m] ? *reinterpret_cast<const float*>(inputs_scale[m] + 4 * unit) : 0.0f;
            float(&of)[4] = sums[m / 2].of[0];
            of[m % 2] = fmaf(scales.x * scale, of_unit[m].total(0), of[m % 2]);
            of[m % 2 + 2] = fmaf(scales.y * scale, of_unit[m].total(1), of[m % 2 + 2]);
        }
    }
}

}  // namespace coda::hopper::decode
