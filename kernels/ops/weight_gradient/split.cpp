// The cost model of a wgrad in parts. With p parts of T tiles, 132 SMs compute p T tiles in waves:
//
//   time = waves (k-tiles per part x time of a k-tile + start and end of a tile)
//          + launch of the second kernel + (p + 1) results through memory                        with several parts
//
// A k-tile's time is in proportion to the tile's area. So a tile that divides the gradient's shape wins over one that
// computes columns or rows beyond it, and few parts that fill the last wave win over many.
#include "kernels/ops/weight_gradient/split.h"

#include <algorithm>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/hopper/gemm/expected_speed.h"

namespace coda {

namespace {

constexpr int kAreaOfModel = 128 * 256;  // of a CTA's tile, for kMicrosecondsPerKTile
constexpr double kWorthParts = 0.95;     // of the time of the undivided sum
constexpr double kWorthTile = 0.98;      // of the time in a tile before it

struct GradientShape {
    std::int64_t out, in, tokens;
};

GradientShape shape_of(const WeightGradient& op) {
    // FP8 operands are transposed.
    return is_f8(op.dy.dtype) ? GradientShape{op.dy.rows, op.x.rows, op.contraction()}
                              : GradientShape{op.dy.cols, op.x.cols, op.contraction()};
}

/// A tile, and its expected speed for undivided sums. 0: only the model below compares it with the others.
struct Candidate {
    hopper::TileConfig tile;
    double speed;
};

template <class... Tiles>
struct Candidates {
    static std::vector<Candidate> of(const GradientShape& shape) {
        return {{Tiles::config, hopper::expected_speed<Tiles>(shape.out, shape.in, shape.tokens)}...};
    }
};

std::vector<Candidate> candidates_of(const WeightGradient& op) {
    const GradientShape shape = shape_of(op);
    if (is_f8(op.dy.dtype)) return OfF8GradientTiles<Candidates, DType::f8e4m3>::of(shape);  // equal for both formats
    std::vector<Candidate> candidates = OfGradientTiles<Candidates>::of(shape);
    candidates.back().speed = 0;  // GradientTall is taken only where the model finds it faster
    return candidates;
}

/// A k-tile takes as long in FP8, where it has twice the tokens.
struct Expected {
    GradientShape shape;

    std::int64_t k_tiles(const hopper::TileConfig& tile) const { return ceil_div(shape.tokens, tile.k()); }
    double gemm(const hopper::TileConfig& tile, std::int64_t parts) const {
        const double k_tile = hopper::kMicrosecondsPerKTile * tile.m * tile.n / kAreaOfModel;
        return static_cast<double>(hopper::waves(tile, parts * hopper::tiles_of(tile, shape.out, shape.in))) *
               (k_tile * static_cast<double>(ceil_div(k_tiles(tile), parts)) + hopper::kMicrosecondsPerTile);
    }
    double in_parts(const hopper::TileConfig& tile, std::int64_t parts) const {
        const double result_bytes = 4.0 * static_cast<double>(shape.out * shape.in);
        return gemm(tile, parts) + hopper::kMicrosecondsPerLaunch +
               static_cast<double>(parts + 1) * result_bytes / hopper::kBytesPerMicrosecond;
    }
};

/// The parts of least expected time in a tile; 1 where no number keeps to the limits.
Split in_tile(const Expected& time, int number, const hopper::TileConfig& tile, const SplitLimits& limits) {
    Split best{.tile = number};
    const std::int64_t rows = round_up(time.shape.out, std::int64_t{tile.cluster_rows()});
    for (std::int64_t parts = 2; parts <= kMostParts && kFewestKTiles * parts <= time.k_tiles(tile); ++parts) {
        const std::int64_t bytes = parts * rows * time.shape.in * size_of(DType::f32);
        if ((limits.parts > 0 && parts != limits.parts) || bytes > limits.scratch_bytes) continue;
        if (best.parts == 1 || time.in_parts(tile, parts) < time.in_parts(tile, best.parts))
            best = {number, parts, rows, bytes};
    }
    return best;
}

bool has_kernels(const WeightGradient& op) { return op.dy.dtype == DType::bf16 || is_f8(op.dy.dtype); }

}  // namespace

Split split_of(const WeightGradient& op, const SplitLimits& limits) {
    const std::vector<Candidate> candidates = candidates_of(op);
    const Expected time{shape_of(op)};
    const auto fastest = std::max_element(candidates.begin(), candidates.end(),
                                          [](const Candidate& a, const Candidate& b) { return a.speed < b.speed; });
    Split best{.tile = limits.tile >= 0 ? limits.tile : static_cast<int>(fastest - candidates.begin())};
    double undivided = time.gemm(fastest->tile, 1);
    for (const Candidate& one : candidates)
        if (one.speed > 0) undivided = std::min(undivided, time.gemm(one.tile, 1));
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const double expected = time.gemm(candidates[i].tile, 1);
        if (limits.tile >= 0 || candidates[i].speed > 0 || expected >= kWorthTile * undivided) continue;
        best.tile = static_cast<int>(i);
        undivided = expected;
    }
    double least = kWorthParts * undivided;
    for (int tile = 0; tile < static_cast<int>(candidates.size()); ++tile) {
        if (limits.tile >= 0 && limits.tile != tile) continue;
        const hopper::TileConfig& config = candidates[static_cast<std::size_t>(tile)].tile;
        const Split split = in_tile(time, tile, config, limits);
        if (split.parts == 1) continue;
        const double expected = time.in_parts(config, split.parts);
        if (limits.parts == 0 && expected >= (best.parts > 1 ? kWorthTile : 1.0) * least) continue;
        best = split;
        least = expected;
    }
    return best;
}

std::int64_t WeightGradient::parts() const { return has_kernels(*this) ? split_of(*this).parts : 1; }

std::int64_t WeightGradient::scratch_bytes() const { return has_kernels(*this) ? split_of(*this).scratch_bytes : 0; }

}  // namespace coda
