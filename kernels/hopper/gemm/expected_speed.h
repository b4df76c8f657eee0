// The speed that a tile is expected to have for a shape: how a program's kernels are compared. Host.
#pragma once

#include <cstdint>

#include "kernels/core/integers.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/hopper/sm90/tile_config.h"

namespace coda::hopper {

/// Waves of clusters that compute `tiles` tiles.
inline std::int64_t waves(const TileConfig& tile, std::int64_t tiles) {
    return ceil_div(tiles, std::int64_t{kMultiprocessors / tile.cluster()});
}

inline std::int64_t tiles_of(const TileConfig& tile, std::int64_t m, std::int64_t n) {
    return ceil_div(m, tile.cluster_rows()) * ceil_div(n, tile.cluster_columns());
}

/// Relative to other tiles: the tile's rate, less the loss by the last wave (as if its tiles were not halved) and by
/// ragged edges.
template <class Tile>
double expected_speed(std::int64_t m, std::int64_t n, std::int64_t k) {
    constexpr TileConfig tile = Tile::config;
    constexpr std::int64_t clusters = kMultiprocessors / tile.cluster();
    const double computed = static_cast<double>(waves(tile, tiles_of(tile, m, n))) * clusters * tile.cluster_rows() *
                            tile.cluster_columns();
    const double of_k = static_cast<double>(k);
    return Tile::rate * of_k / (of_k + Tile::fixed) * static_cast<double>(m) * static_cast<double>(n) / computed;
}

}  // namespace coda::hopper
