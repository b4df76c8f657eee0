// Rounds rows to 4-bit integers so that the products with their inputs change least: GPTQ (arXiv 2210.17323).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/dtype.h"

namespace coda {

/// Codes and scales of rows of `cols` columns, a multiple of kInt4Group, in the layout of quantize_row. Columns are
/// rounded from the first to the last; what a rounding changes in the products, the columns after it make up for, by
/// `factor` (inverse_factor of Σ x xᵀ). A group's scale is int4_scale_of its columns as they then are, with the weights
/// 1/u², u being a column's diagonal element of the factor: the square error of column k, divided by u², is what it
/// adds to the error of the products after later columns have made up for it. `rows` is overwritten.
void gptq_rows(std::span<float> rows, std::int64_t cols, std::span<const float> factor, std::span<std::uint32_t> words,
               std::span<Bf16> scales);

}  // namespace coda
