// A head's rows as FP8 codes: what attention stores of o next to bf16, and of dq, dk and dv in place of it. Device.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <type_traits>

#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/shared_vectors.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"
#include "kernels/hopper/sm90/f8_quads.cuh"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/magnitude.cuh"
#include "kernels/hopper/sm90/swizzle.h"

namespace coda::hopper {

struct CodesArguments {
    const float* scale;
    std::byte* rows;     // (M, N)
    std::byte* columns;  // (N, M), in paired order; may be null
    float* amax;
    std::int64_t rows_ld, columns_ld;
};

/// The arguments of a kernel and, where its tile rounds, those of the codes.
template <class Arguments>
struct WithCodes : Arguments {
    CodesArguments codes;
};
template <class Tile, class Arguments>
using AndCodes = std::conditional_t<Tile::kRounds, WithCodes<Arguments>, Arguments>;

/// Staged rows: panels of 64 columns in swizzled rows of 128 bytes.
struct PanelRows {
    std::uint32_t base;
    int panel_bytes, first;  // row 0 is row `first` of the panels
    static constexpr int kEightRows = 8 * kPanelRowBytes;

    __device__ __forceinline__ std::uint32_t address(int row, int column) const {
        return base + column / 64 * panel_bytes + swizzled_offset(first + row, column % 64 * 2, kPanelRowBytes);
    }
};

/// Staged rows, kPitch bytes apart.
template <int kPitch>
struct PitchedRows {
    std::uint32_t base;
    static constexpr int kEightRows = 8 * kPitch;

    __device__ __forceinline__ std::uint32_t address(int row, int column) const {
        return base + row * kPitch + 2 * column;
    }
};

/// Four tokens of a quad by kColumns of a head: what they have in bf16, and their codes.
template <DType kFormat, int kColumns>
struct CodeBlock {
    static constexpr int kWords = kColumns / 4;
    std::uint32_t pairs[4][2 * kWords];
    std::uint32_t codes[4][kWords];

    __device__ __forceinline__ void load(int j, std::uint32_t address) {
        if constexpr (kWords == 2) {
            const int4 found = ptx::load_shared_integers(address);
            pairs[j][0] = static_cast<std::uint32_t>(found.x), pairs[j][1] = static_cast<std::uint32_t>(found.y);
            pairs[j][2] = static_cast<std::uint32_t>(found.z), pairs[j][3] = static_cast<std::uint32_t>(found.w);
        } else {
            const uint2 found = ptx::load_shared_words(address);
            pairs[j][0] = found.x, pairs[j][1] = found.y;
        }
    }
    /// The scale is a power of two, so products in bf16 are exact. The code of a product that underflows is 0.
    __device__ __forceinline__ void round(__nv_bfloat162 scale, __nv_bfloat162& largest) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int word = 0; word < kWords; ++word) {
                float value[4];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const auto pair = reinterpret_cast<const __nv_bfloat162&>(pairs[j][2 * word + half]);
                    largest = __hmax2(largest, __habs2(pair));
                    const __nv_bfloat162 scaled = __hmul2(pair, scale);
                    const float2 both = unpack_bf16(reinterpret_cast<const std::uint32_t&>(scaled));
                    value[2 * half] = both.x, value[2 * half + 1] = both.y;
                }
                codes[j][word] = round_to_f8x4<kFormat>(value);
            }
    }
    __device__ __forceinline__ void store_row(int j, std::byte* to) const {
        if constexpr (kWords == 2)
            *reinterpret_cast<uint2*>(to) = {codes[j][0], codes[j][1]};
        else
            *reinterpret_cast<std::uint32_t*>(to) = codes[j][0];
    }
    /// Calls store(address, word of four tokens) for each column.
    template <class Store>
    __device__ __forceinline__ void store_columns(std::byte* to, std::int64_t ld, const Store& store) const {
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
            const uint4 found = transpose_bytes(codes[0][word], codes[1][word], codes[2][word], codes[3][word]);
            const std::uint32_t columns[4] = {found.x, found.y, found.z, found.w};
#pragma unroll
            for (int c = 0; c < 4; ++c, to += ld) store(to, columns[c]);
        }
    }
};

/// Rounds `count` rows of a head that are staged in bf16, and stores their codes. Row 0 is token `token`, and `column`
/// is the head's first. The scale is a power of two. For kThreads threads, of which this is `thread`; each takes
/// kColumns columns of four tokens at a time: 8, or 4 where registers are short.
template <DType kFormat, int kHeadDim, int kThreads, int kColumns = 8, class Staged>
__device__ __forceinline__ void store_codes(const CodesArguments& codes, int token, int count, int column, int thread,
                                            const Staged& staged) {
    if (count <= 0) return;
    constexpr unsigned kAcross = kHeadDim / kColumns / 4;  // blocks of 4 groups of columns
    const __nv_bfloat162 scale = __float2bfloat162_rn(*codes.scale);
    const unsigned first = static_cast<unsigned>(token);
    const int lead = static_cast<int>(first % 16);  // tokens before row 0 in its 16
    const unsigned quads = static_cast<unsigned>(lead + count + 15) / 16 * 4, lane = static_cast<unsigned>(thread) % 32;
    __nv_bfloat162 largest{};
    // A warp takes 8 quads of tokens by 4 groups of columns: whole sectors of 32 bytes transposed and, of 8 columns, by
    // rows too.
#pragma unroll 1
    for (unsigned at = static_cast<unsigned>(thread) / 32; at < (quads + 7) / 8 * kAcross; at += kThreads / 32) {
        const unsigned quad = at / kAcross * 8 + lane / 4;
        if (quad >= quads) continue;
        const int own = kColumns * static_cast<int>(at % kAcross * 4 + lane % 4);  // the thread's first column
        // NOTE: token_of(quad, j, true) for j = 0, 1, 2, 3 is 0, 8, 1 and 9 tokens after the first.
        const int row = token_of(static_cast<int>(quad), 0, true) - lead;
        const int rows[4] = {row, row + 8, row + 1, row + 9};
        const auto inside = [&](int j) { return static_cast<unsigned>(rows[j]) < static_cast<unsigned>(count); };
        const bool whole = inside(0) && inside(3);
        CodeBlock<kFormat, kColumns> block;
        if (whole) {
            const std::uint32_t even = staged.address(row, own), odd = staged.address(row + 1, own);
            block.load(0, even), block.load(1, even + Staged::kEightRows);
            block.load(2, odd), block.load(3, odd + Staged::kEightRows);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (std::uint32_t& pair : block.pairs[j]) pair = 0;
                if (inside(j)) block.load(j, staged.address(rows[j], own));
            }
        }
        block.round(scale, largest);
        std::byte* const to_rows =
            codes.rows + (static_cast<std::int64_t>(first) + row) * codes.rows_ld + (column + own);
        std::byte* const to_columns =
            codes.columns + std::int64_t{column + own} * codes.columns_ld + (first - lead + 4 * quad);
        if (whole) {
            block.store_row(0, to_rows), block.store_row(1, to_rows + 8 * codes.rows_ld);
            block.store_row(2, to_rows + codes.rows_ld), block.store_row(3, to_rows + 9 * codes.rows_ld);
            if (codes.columns == nullptr) continue;
            block.store_columns(to_columns, codes.columns_ld, [](std::byte* to, std::uint32_t tokens) {
                *reinterpret_cast<std::uint32_t*>(to) = tokens;
            });
        } else {
            // NOTE: the other tokens are of another block or sequence.
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (inside(j)) block.store_row(j, to_rows + (rows[j] - row) * codes.rows_ld);
            if (codes.columns == nullptr) continue;
            block.store_columns(to_columns, codes.columns_ld, [&](std::byte* to, std::uint32_t tokens) {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (inside(j)) to[j] = static_cast<std::byte>(tokens >> 8 * j & 0xff);
            });
        }
    }
    const float of_warp = warp_largest(fmaxf(__low2float(largest), __high2float(largest)));
    if (lane == 0) raise_magnitude(codes.amax, of_warp);
}

}  // namespace coda::hopper
