#include "kernels/tiling.h"

namespace coda::tiling {

namespace {

constexpr std::int64_t kColumnTile = 256;   // columns of a CTA tile of the GEMM programs with row statistics
constexpr std::int64_t kRowTile = 64;       // rows over which a warpgroup sums column statistics
constexpr std::int64_t kQueryTile = 128;    // rows of a query block of attention
constexpr std::int64_t kNormBlocks = 1024;  // partial sums of GradNorm

std::int64_t attention_scratch(const View& qkv, std::int64_t seq_len, std::int64_t heads, std::int64_t head_dim) {
    if (qkv.dtype != DType::bf16) return 0;
    // fp32 dq accumulator over padded query blocks, and one hand-off counter per query block and head.
    const std::int64_t batch = qkv.rows / seq_len;
    const std::int64_t blocks = ceil_div(seq_len, kQueryTile);
    const std::int64_t accumulator = batch * heads * blocks * kQueryTile * head_dim * size_of(DType::f32);
    return accumulator + round_up(batch * heads * blocks * size_of(DType::i32), 256);
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
std::int64_t column_tile<LinearRstdCrossEntropy>(std::int64_t) {
    return kColumnTile;
}
template <>
std::int64_t row_tile<LinearRmsBackward>() {
    return kRowTile;
}

std::int64_t scratch_bytes(const WeightGradient&) { return 0; }

std::int64_t scratch_bytes(const AttentionBackward& op) {
    if (op.qkv.dtype != DType::bf16) return 0;
    const std::int64_t delta = round_up(op.heads * op.qkv.rows * size_of(DType::f32), 256);
    return attention_scratch(op.qkv, op.seq_len, op.heads, op.head_dim) + delta;
}

std::int64_t scratch_bytes(const AttentionRopeBackward& op) {
    return attention_scratch(op.qkv, op.seq_len, op.heads, op.head_dim);
}

std::int64_t scratch_bytes(const EmbedBackward& op) {
    if (op.dx.dtype != DType::bf16) return 0;
    // (token, row) pairs twice, for a sort that is not in place.
    return 4 * round_up(op.tokens.cols * size_of(DType::i32), 256);
}

std::int64_t scratch_bytes(const GradNorm&) { return kNormBlocks * size_of(DType::f64); }

}  // namespace coda::tiling
