// The choice of a token on the host.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/math/sampling.h"

namespace coda::sampling {

/// The token of one row of at least 1 and at most kLargestVocab logits, all finite and with the repetition penalty
/// applied (penalised()), for `draw` (draw_of()).
std::int32_t choose(std::span<const float> logits, const Rules& rules, std::uint64_t draw);

}  // namespace coda::sampling
