#include "kernels/tiling.h"

#include <algorithm>

namespace coda::tiling {

namespace {

constexpr std::int64_t kColumnTile = 128;    // columns of a CTA tile of the GEMM programs with row statistics
constexpr std::int64_t kRowTile = 64;        // rows over which a warpgroup sums column statistics
constexpr std::int64_t kGradientTile = 256;  // rows and columns of a weight gradient that a cluster of 2 CTAs takes
constexpr std::int64_t kNarrowGradientTile = 192;  // columns of its other configuration
constexpr std::int64_t kGradientClusters = 66;     // such clusters on a GPU of 132 SMs
constexpr std::int64_t kMostGradientParts = 16;
constexpr std::int64_t kMostGradientScratch = 64 << 20;  // bytes
constexpr std::int64_t kQueryTile = 128;                 // rows to which attention pads a sequence

std::int64_t attention_scratch(const View& qkv, std::int64_t seq_len, std::int64_t heads, std::int64_t head_dim) {
    if (qkv.dtype != DType::bf16) return 0;
    // Over padded sequences: fp32 sums of dq; lse and delta per query head; document starts; one hand-off counter per
    // query block of 64 or 128 rows and half of its work; and the ticket of the next work item.
    const std::int64_t batch = qkv.rows / seq_len;
    const std::int64_t padded = round_up(seq_len, kQueryTile);
    const std::int64_t rows = batch * heads * padded;
    const std::int64_t counters = rows / (head_dim == 64 ? 128 : 64) * 2;
    const auto section = [](std::int64_t words) { return round_up(words * size_of(DType::f32), 256); };
    return section(rows * head_dim) + 2 * section(rows) + section(batch * padded) + section(counters) + section(1);
}

}  // namespace

template <>
std::int64_t column_tile<LinearResidualRms>(std::int64_t) {
    return kColumnTile;
}
template <>
std::int64_t column_tile<LinearSwigluBackward>(std::int64_t) {
    return kColumnTile;
}
template <>
std::int64_t column_tile<LinearCrossEntropy>(std::int64_t) {
    return kColumnTile;
}
template <>
std::int64_t row_tile<LinearRmsBackward>() {
    return kRowTile;
}

std::int64_t gradient_parts(const WeightGradient& op) {
    if (op.dy.dtype != DType::bf16) return 1;
    const std::int64_t k_tiles = ceil_div(op.dy.rows, 64);
    const double result_bytes = 4.0 * static_cast<double>(op.dy.cols * op.x.cols);
    // Microseconds on an H200: 0.8 a k-tile of 256 columns, 3 a tile's start and end, 3 the summing kernel's start, and
    // its memory.
    const auto product_time = [&](std::int64_t columns, std::int64_t parts) {
        const std::int64_t tiles = ceil_div(op.dy.cols, kGradientTile) * ceil_div(op.x.cols, columns);
        const double k_tile = 0.8 * static_cast<double>(columns) / kGradientTile;
        return static_cast<double>(ceil_div(tiles * parts, kGradientClusters)) *
               (k_tile * static_cast<double>(ceil_div(k_tiles, parts)) + 3);
    };
    const double whole = std::min(product_time(kGradientTile, 1), product_time(kNarrowGradientTile, 1));
    const auto time = [&](std::int64_t parts) {
        return product_time(kGradientTile, parts) + 3 + static_cast<double>(parts + 1) * result_bytes / 3e6;
    };
    std::int64_t best = 1;
    for (std::int64_t parts = 2; parts <= kMostGradientParts && 4 * parts <= k_tiles; ++parts) {
        const bool fits = parts * gradient_part_rows(op) * op.x.cols * size_of(DType::f32) <= kMostGradientScratch;
        if (fits && time(parts) < (best == 1 ? 0.9 * whole : time(best))) best = parts;
    }
    return best;
}

std::int64_t gradient_part_rows(const WeightGradient& op) { return round_up(op.dy.cols, kGradientTile); }

std::int64_t scratch_bytes(const WeightGradient& op) {
    const std::int64_t parts = gradient_parts(op);
    return parts == 1 ? 0 : parts * gradient_part_rows(op) * op.x.cols * size_of(DType::f32);
}

std::int64_t scratch_bytes(const AttentionBackward& op) {
    return attention_scratch(op.qkv, op.seq_len, op.heads, op.head_dim);
}

std::int64_t scratch_bytes(const EmbedBackward& op) {
    if (op.dx.dtype != DType::bf16) return 0;
    // Counters, and (token, row) pairs twice, for a sort that is not in place.
    return 256 + 2 * round_up(2 * op.tokens.cols * size_of(DType::i32), 256);
}

std::int64_t scratch_bytes(const GradNorm& op) { return ceil_div(op.grad.cols, kNormBlock) * size_of(DType::f64); }

}  // namespace coda::tiling
