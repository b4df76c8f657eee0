// The epilogue of GEMM ops that only scale and store.
#pragma once

#include "kernels/cpu/gemm_operands.h"

namespace coda::cpu {

/// The factor where rows or columns have none.
inline constexpr auto one = [](std::int64_t) { return 1; };

/// out = factor acc, or out += factor acc, on one macro-tile. The sum is rounded once. The factor is the row's factor
/// times the column's.
template <class Compute, class Out, class OfRow, class OfColumn>
void store_tile(const AccumulatorTile<Compute>& tile, const OfRow& of_row, const OfColumn& of_column, Beta beta,
                Rows<Out> to) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
        const Compute* acc = tile[i];
        const auto scale = static_cast<Compute>(of_row(tile.row + i));
        const auto value = [&](std::int64_t j) {
            return scale * acc[j] * static_cast<Compute>(of_column(tile.col + j));
        };
        Out* out = to[tile.row + i] + tile.col;
        if (beta == Beta::accumulate) {
#pragma omp simd
            for (std::int64_t j = 0; j < tile.cols; ++j) store(out[j], static_cast<Compute>(out[j]) + value(j));
        } else {
#pragma omp simd
            for (std::int64_t j = 0; j < tile.cols; ++j) store(out[j], value(j));
        }
    }
}

}  // namespace coda::cpu
