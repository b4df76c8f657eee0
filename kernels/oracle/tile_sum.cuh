// Sums of partials over their tiles, one thread per sum, in double. Device.
#pragma once

#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

/// Σ_tiles partials[tile][column].
struct TileSum {
    Tensor partials;
    std::int64_t tiles;

    __device__ double operator[](std::int64_t column) const {
        double sum = 0;
        for (std::int64_t tile = 0; tile < tiles; ++tile) sum += static_cast<double>(partials(tile, column));
        return sum;
    }
};

inline TileSum tile_sum(const OpCheck& check, const View& partials) { return {live(check, partials), partials.rows}; }

}  // namespace coda::oracle
