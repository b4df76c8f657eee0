// Weights and moments are looked at before they are kept.
#pragma once

#include <cstdint>

#include "src/train/session.h"

namespace coda {

/// Throws NonFiniteError naming the first weight, or the first element of a moment, that is not finite, by its Hugging
/// Face tensor.
void require_finite_state(Session& session, std::int64_t step);

}  // namespace coda
