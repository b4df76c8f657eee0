// How a wgrad is computed on a Hopper GPU: in which tile, and in how many parts of its sum. Host-only, so that a
// machine without a GPU can plan the GPU's memory to the byte.
#pragma once

#include <cstdint>

#include "kernels/core/tolerance.h"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/weight_gradient/op.h"

namespace coda {

/// The tiles of the kernels for operands of a type, in the order of Split::tile. kA: the format of dy.
template <template <class...> class Of>
using OfGradientTiles = Of<hopper::tiles::GradientWide, hopper::tiles::GradientNarrow, hopper::tiles::GradientTall>;
template <template <class...> class Of, DType kA>
using OfF8GradientTiles = Of<hopper::tiles::F8<hopper::tiles::PromotedNarrow, kPromotionOverTokens, kA>,
                             hopper::tiles::F8<hopper::tiles::PromotedSmall, kPromotionOverTokens, kA>,
                             hopper::tiles::F8<hopper::tiles::PromotedShared, kPromotionOverTokens, kA>>;

inline constexpr std::int64_t kMostParts = 16, kFewestKTiles = 4;  // the latter per part

struct Split {
    int tile = 0;
    std::int64_t parts = 1;
    std::int64_t part_rows = 0;      // rows of a part's result, padded to whole tiles
    std::int64_t scratch_bytes = 0;  // of the results of all parts; 0 with one part
};

/// What a split must keep to.
struct SplitLimits {
    int tile = -1;           // -1: any
    std::int64_t parts = 0;  // 0: any number
    std::int64_t scratch_bytes = 64LL << 20;
};

/// The split of least expected time. Without one that keeps to the limits: one part. The op has bf16 or FP8 operands.
Split split_of(const WeightGradient& op, const SplitLimits& limits = {});

}  // namespace coda
