// The number of parts into which a wgrad's sum is cut, by the expected time on a Hopper GPU. Host-only, so that a
// machine without a GPU can plan the GPU's memory to the byte.
#include <algorithm>

#include "kernels/hopper/sm90/device_model.h"
#include "kernels/ops/weight_gradient/op.h"

namespace coda {

namespace {

constexpr std::int64_t kWideTile = 256;    // rows and columns of the gradient that a cluster of 2 CTAs takes
constexpr std::int64_t kNarrowTile = 192;  // columns of its other configuration
constexpr std::int64_t kClusters = hopper::kMultiprocessors / 2;
constexpr std::int64_t kMostParts = 16;
constexpr std::int64_t kMostScratch = 64 << 20;  // bytes

}  // namespace

std::int64_t WeightGradient::parts() const {
    if (dy.dtype != DType::bf16) return 1;
    const std::int64_t k_tiles = ceil_div(dy.rows, 64);
    const double result_bytes = 4.0 * static_cast<double>(dy.cols * x.cols);
    const auto gemm_time = [&](std::int64_t columns, std::int64_t parts) {
        const std::int64_t tiles = ceil_div(dy.cols, kWideTile) * ceil_div(x.cols, columns);
        const double k_tile = hopper::kMicrosecondsPerKTile * static_cast<double>(columns) / kWideTile;
        return static_cast<double>(ceil_div(tiles * parts, kClusters)) *
               (k_tile * static_cast<double>(ceil_div(k_tiles, parts)) + hopper::kMicrosecondsPerTile);
    };
    const double whole = std::min(gemm_time(kWideTile, 1), gemm_time(kNarrowTile, 1));
    const auto time = [&](std::int64_t parts) {
        return gemm_time(kWideTile, parts) + hopper::kMicrosecondsPerLaunch +
               static_cast<double>(parts + 1) * result_bytes / hopper::kBytesPerMicrosecond;
    };
    std::int64_t best = 1;
    for (std::int64_t parts = 2; parts <= kMostParts && 4 * parts <= k_tiles; ++parts) {
        const bool fits = parts * part_rows() * x.cols * size_of(DType::f32) <= kMostScratch;
        if (fits && time(parts) < (best == 1 ? 0.9 * whole : time(best))) best = parts;
    }
    return best;
}

std::int64_t WeightGradient::part_rows() const { return round_up(dy.cols, kWideTile); }

std::int64_t WeightGradient::scratch_bytes() const {
    const std::int64_t number = parts();
    return number == 1 ? 0 : number * part_rows() * x.cols * size_of(DType::f32);
}

}  // namespace coda
