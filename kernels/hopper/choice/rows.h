// The operands of ChooseToken besides the logits, as addresses. Host and device, without CUDA.
#pragma once

#include <cstdint>

#include "kernels/math/sampling.h"

namespace coda {

/// Shapes: ChooseToken. `end_tokens`, `seen` and `positions` may be null.
struct ChoiceRows {
    const ChoiceOptions* options = nullptr;
    const std::int32_t *end_tokens = nullptr, *limits = nullptr;
    std::int32_t *seen = nullptr, *lengths = nullptr, *positions = nullptr, *state = nullptr, *token = nullptr,
                 *status = nullptr;
    std::int64_t end_ld = 0, seen_ld = 0;
    int ends = 0;
};

}  // namespace coda
