// The cost model of a wgrad in parts. With p parts of T tiles, 132 SMs compute p T tiles in waves:
//
//   time = waves (k-tiles per part x time of a k-tile + start and end of a tile)
//          + launch of the second kernel + (p + 1) results through memory                        with several parts
//
// A k-tile's time is in proportion to the tile's area. So a tile that divides the gradient's shape wins over one that
// computes columns or rows beyond it, and few parts that fill the last wave win over many.
#include "kernels/ops/weight_gradient/split.h"

#include <algorithm>

#include "kernels/core/integers.h"
#include "kernels/hopper/gemm/expected_speed.h"

namespace coda {

namespace {

constexpr int kTokensPerKTile = 64;
constexpr std::int64_t kMostParts = 16, kFewestKTiles = 4;  // the latter per part
constexpr int kAreaOfModel = 256 * 256;                     // of a cluster's tile, for kMicrosecondsPerKTile
constexpr double kWorthParts = 0.95;                        // of the time of the undivided sum
constexpr double kWorthTile = 0.98;                         // of the time in a tile before it

struct Expected {
    const WeightGradient& op;
    const std::int64_t k_tiles = ceil_div(op.dy.rows, std::int64_t{kTokensPerKTile});

    double gemm(const hopper::TileConfig& tile, std::int64_t parts) const {
        const double k_tile =
            hopper::kMicrosecondsPerKTile * tile.cluster_rows() * tile.cluster_columns() / kAreaOfModel;
        return static_cast<double>(hopper::waves(tile, parts * hopper::tiles_of(tile, op.dy.cols, op.x.cols))) *
               (k_tile * static_cast<double>(ceil_div(k_tiles, parts)) + hopper::kMicrosecondsPerTile);
    }
    double in_parts(const hopper::TileConfig& tile, std::int64_t parts) const {
        const double result_bytes = 4.0 * static_cast<double>(op.dy.cols * op.x.cols);
        return gemm(tile, parts) + hopper::kMicrosecondsPerLaunch +
               static_cast<double>(parts + 1) * result_bytes / hopper::kBytesPerMicrosecond;
    }
};

/// The parts of least expected time in a tile; 1 where no number keeps to the limits.
Split in_tile(const Expected& time, int tile, const hopper::TileConfig& config, const SplitLimits& limits) {
    Split best{.tile = tile};
    const std::int64_t rows = round_up(time.op.dy.cols, std::int64_t{config.cluster_rows()});
    for (std::int64_t parts = 2; parts <= kMostParts && kFewestKTiles * parts <= time.k_tiles; ++parts) {
        const std::int64_t bytes = parts * rows * time.op.x.cols * size_of(DType::f32);
        if ((limits.parts > 0 && parts != limits.parts) || bytes > limits.scratch_bytes) continue;
        if (best.parts == 1 || time.in_parts(config, parts) < time.in_parts(config, best.parts))
            best = {tile, parts, rows, bytes};
    }
    return best;
}

template <class Wide, class Narrow, class Tall>
struct Splits {
    static Split least_time(const WeightGradient& op, const SplitLimits& limits) {
        const Expected time{op};
        const std::int64_t m = op.dy.cols, n = op.x.cols, k = op.dy.rows;
        Split best{.tile = limits.tile};
        if (best.tile < 0)
            best.tile = hopper::expected_speed<Narrow>(m, n, k) > hopper::expected_speed<Wide>(m, n, k) ? 1 : 0;
        double undivided = std::min(time.gemm(Wide::config, 1), time.gemm(Narrow::config, 1));
        if (limits.tile < 0 && time.gemm(Tall::config, 1) < kWorthTile * undivided) {
            best.tile = 2;
            undivided = time.gemm(Tall::config, 1);
        }
        double least = kWorthParts * undivided;
        const hopper::TileConfig tiles[] = {Wide::config, Narrow::config, Tall::config};
        for (int tile = 0; tile < 3; ++tile) {
            if (limits.tile >= 0 && limits.tile != tile) continue;
            const Split split = in_tile(time, tile, tiles[tile], limits);
            if (split.parts == 1) continue;
            const double expected = time.in_parts(tiles[tile], split.parts);
            if (limits.parts == 0 && expected >= (best.parts > 1 ? kWorthTile : 1.0) * least) continue;
            best = split;
            least = expected;
        }
        return best;
    }
};

}  // namespace

Split split_of(const WeightGradient& op, const SplitLimits& limits) {
    return OfGradientTiles<Splits>::least_time(op, limits);
}

std::int64_t WeightGradient::parts() const { return dy.dtype == DType::bf16 ? split_of(*this).parts : 1; }

std::int64_t WeightGradient::scratch_bytes() const {
    return dy.dtype == DType::bf16 ? split_of(*this).scratch_bytes : 0;
}

}  // namespace coda
