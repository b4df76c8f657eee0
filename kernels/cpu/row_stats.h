// Statistics of the rows of a matrix in host memory.
#pragma once

#include <vector>

#include "kernels/core/memory.h"
#include "kernels/core/row_stats.h"

namespace coda::cpu {

/// One entry per row of `view`, which is bf16, f32 or f64 (Error otherwise); gaps between its rows are not read.
/// Squares are summed in double from the first column to the last.
std::vector<RowStats> row_stats(const View& view, const Memory& memory);

}  // namespace coda::cpu
