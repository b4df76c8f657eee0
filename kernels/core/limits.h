// The limits of the Hopper kernels, in one place. --dry-run and --device auto read them on machines without a GPU, and
// the kernels' own checks throw with the same words. Host, without CUDA.
//
// A *_problem function returns nothing where the kernels support `value`. Otherwise it returns a sentence that names
// the limit, `name` and the value. `name` is the configuration's key or the op's field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/core/error.h"

namespace coda::limits {

/// Attention keeps a query's whole head in registers, and is compiled for these head dimensions.
inline constexpr int kHeadDims[] = {64, 128};

/// Widths of bf16 rows are multiples of this, so that rows start at multiples of 16 bytes: TMA's alignment, and one
/// vector access of the pointwise kernels.
inline constexpr std::int64_t kWidthMultiple = 8;

/// Folded matrices (NormFold) of one AdamW launch. The kernel takes them as parameters, which hold 4 KiB.
inline constexpr std::int64_t kMaxFolds = 256;
/// Two folds per layer, and the head.
inline constexpr std::int64_t kMaxLayers = (kMaxFolds - 1) / 2;

/// Rows of an op's operands. Kernels count rows in 32 bits, and a tile reaches up to 256 rows past the last one.
inline constexpr std::int64_t kMaxTokens = (std::int64_t{1} << 31) - 257;
/// Tiles of a GEMM or of Attention. A persistent block counts them in 32 bits, and a GEMM's looks up to two rounds of
/// all blocks past the last one.
inline constexpr std::int64_t kMaxTiles = (std::int64_t{1} << 31) - 1 - (1 << 16);
/// Rows of AttentionBackward over all heads and padded sequences. Its roles with 24 registers count them in 32 bits.
inline constexpr std::int64_t kMaxHeadRows = (std::int64_t{1} << 31) - 1;

/// Blocks along y or z of a grid: heads of AttentionBackward, and sequences of one of its launches.
inline constexpr std::int64_t kMaxGridY = 65535;
inline constexpr std::int64_t kMaxHeads = kMaxGridY;

/// Query heads per key/value head of DecodeAttention, whose logits lie in 48 KiB of shared memory.
inline constexpr std::int64_t kMaxCacheGroup = 16;
/// Positions of a cache's sequence, which DecodeAttention counts in 32 bits.
inline constexpr std::int64_t kMaxContext = (std::int64_t{1} << 31) - 257;

/// Tiles of Attention, of `queries` rows of a head and a sequence.
constexpr std::int64_t attention_tiles(std::int64_t sequences, std::int64_t heads, std::int64_t seq_len,
                                       std::int64_t queries) {
    return sequences * heads * ((seq_len + queries - 1) / queries);
}

constexpr bool is_head_dim(std::int64_t value) {
    for (const int head_dim : kHeadDims)
        if (value == head_dim) return true;
    return false;
}

inline std::optional<std::string> head_dim_problem(const char* name, std::int64_t value) {
    if (is_head_dim(value)) return std::nullopt;
    return text("the GPU's attention has heads of ", kHeadDims[0], " or ", kHeadDims[1], ", and ", name, " is ", value);
}

inline std::optional<std::string> width_problem(const char* name, std::int64_t value) {
    if (value > 0 && value % kWidthMultiple == 0) return std::nullopt;
    return text("the GPU's kernels need a ", name, " that is a multiple of ", kWidthMultiple, ", and it is ", value);
}

inline std::optional<std::string> layers_problem(const char* name, std::int64_t value) {
    if (value <= kMaxLayers) return std::nullopt;
    return text("the GPU's AdamW takes models of up to ", kMaxLayers, " layers, and ", name, " is ", value);
}

inline std::optional<std::string> tokens_problem(const char* name, std::int64_t value) {
    if (value <= kMaxTokens) return std::nullopt;
    return text("the GPU's kernels take up to ", kMaxTokens, " tokens, and ", name, " is ", value);
}

inline std::optional<std::string> tiles_problem(const char* name, std::int64_t value) {
    if (value <= kMaxTiles) return std::nullopt;
    return text("the GPU's kernels take up to ", kMaxTiles, " tiles, and ", name, " is ", value,
                ": use a smaller micro-batch");
}

inline std::optional<std::string> head_rows_problem(const char* name, std::int64_t value) {
    if (value <= kMaxHeadRows) return std::nullopt;
    return text("the GPU's attention takes up to ", kMaxHeadRows, " rows of all heads, and ", name, " is ", value,
                ": use a smaller micro-batch");
}

inline std::optional<std::string> heads_problem(const char* name, std::int64_t value) {
    if (value <= kMaxHeads) return std::nullopt;
    return text("the GPU's attention takes up to ", kMaxHeads, " heads, and ", name, " is ", value);
}

inline std::optional<std::string> group_problem(const char* name, std::int64_t value) {
    if (value <= kMaxCacheGroup) return std::nullopt;
    return text("the GPU's attention over a cache takes up to ", kMaxCacheGroup,
                " query heads per key/value head, and ", name, " is ", value);
}

inline std::optional<std::string> context_problem(const char* name, std::int64_t value) {
    if (value <= kMaxContext) return std::nullopt;
    return text("the GPU's attention over a cache takes up to ", kMaxContext, " positions, and ", name, " is ", value);
}

/// Throws Error with the op's name if there is a problem.
inline void require_none(const char* op, const std::optional<std::string>& problem) {
    require(!problem, op, ": ", problem.value_or(""));
}

}  // namespace coda::limits
