// Weights and moments are looked at before they are kept.
#pragma once

#include <cstdint>

#include "src/engine/session.h"
#include "src/model/master_weights.h"

namespace coda {

/// Throws NonFiniteError naming the first weight, or the first element of a moment, that is not finite, by its Hugging
/// Face tensor.
void require_finite_state(Session& session, std::int64_t step);

/// The same for weights that are to be exported: throws before anything is written.
void require_finite_weights(const MasterWeights& weights, const ParameterLayout& layout);

}  // namespace coda
