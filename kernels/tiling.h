// Tile sizes and work space of the Hopper kernels, as data: host-only, so a machine without a GPU plans the GPU's
// memory to the byte. cpu::run obeys the tile widths too; a Hopper kernel built for another width refuses the op.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace coda {

constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return ceil_div(value, to) * to; }

namespace tiling {

/// Columns per partial of a GEMM program that reduces along rows (op.tile of LinearResidualRms, LinearSwigluBackward,
/// LinearCrossEntropy).
template <class Program>
std::int64_t column_tile(std::int64_t n);

/// Rows per partial of a GEMM program that reduces along columns (op.tile of LinearRmsBackward).
template <class Program>
std::int64_t row_tile();

/// Consecutive elements of the gradient per partial sum of GradNorm.
inline constexpr std::int64_t kNormBlock = 1 << 16;

/// Parts into which a weight gradient's sum over tokens is cut, where its tiles alone would leave most of the GPU idle:
/// 1, or the number whose expected time is least, counted for a GPU of 132 SMs. Each part's sum is kept apart in the
/// op's scratch, `gradient_part_rows` rows of fp32 each, and they are added in order.
std::int64_t gradient_parts(const WeightGradient& op);
std::int64_t gradient_part_rows(const WeightGradient& op);

/// Bytes that the op's `scratch` operand must have; 0 where it may be absent. Only bf16 storage runs on Hopper, so ops
/// of other storage types need none. Reads shapes and dtypes of the other operands, which must be set.
std::int64_t scratch_bytes(const WeightGradient& op);
std::int64_t scratch_bytes(const AttentionBackward& op);
std::int64_t scratch_bytes(const EmbedBackward& op);
std::int64_t scratch_bytes(const GradNorm& op);

}  // namespace tiling
}  // namespace coda
