#include "kernels/tiling.h"

namespace coda::tiling {

namespace {

constexpr std::int64_t kColumnTile = 128;   // columns of a CTA tile of the GEMM programs with row statistics
constexpr std::int64_t kRowTile = 64;       // rows over which a warpgroup sums column statistics
constexpr std::int64_t kQueryTile = 128;    // rows to which attention pads a sequence
constexpr std::int64_t kNormBlocks = 1024;  // partial sums of GradNorm

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
std::int64_t column_tile<LinearRstdCrossEntropy>(std::int64_t) {
    return kColumnTile;
}
template <>
std::int64_t row_tile<LinearRmsBackward>() {
    return kRowTile;
}

std::int64_t scratch_bytes(const WeightGradient&) { return 0; }

std::int64_t scratch_bytes(const AttentionBackward& op) {
    return attention_scratch(op.qkv, op.seq_len, op.heads, op.head_dim);
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
