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
/// Rows of EmbedBackward, the tokens of a training micro-batch. Its blocks sort them by token in shared memory.
inline constexpr std::int64_t kMaxTrainedTokens = std::int64_t{1} << 20;
/// Rows of AttentionBackward over all heads and padded sequences. Its roles with 24 registers count them in 32 bits.
inline constexpr std::int64_t kMaxHeadRows = (std::int64_t{1} << 31) - 1;

/// Heads of AttentionBackward, which are the y and z of a grid: 16 bits each.
inline constexpr std::int64_t kMaxHeads = 65535;
inline constexpr std::int64_t kMaxSequences = 65535;

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

inline std::optional<std::string> trained_tokens_problem(const char* name, std::int64_t value) {
    if (value <= kMaxTrainedTokens) return std::nullopt;
    return text("the GPU trains on up to ", kMaxTrainedTokens, " tokens at a time, and ", name, " is ", value,
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

inline std::optional<std::string> sequences_problem(const char* name, std::int64_t value) {
    if (value <= kMaxSequences) return std::nullopt;
    return text("the GPU's attention takes up to ", kMaxSequences, " sequences at a time, and ", name, " is ", value,
                ": use a smaller micro-batch");
}

/// Throws Error with the op's name where there is a problem.
inline void require_none(const char* op, const std::optional<std::string>& problem) {
    require(!problem, op, ": ", problem.value_or(""));
}

}  // namespace coda::limits
