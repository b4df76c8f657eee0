// Initial weights, as Hugging Face makes them.
#pragma once

#include <cstdint>
#include <span>

#include "src/model/parameters.h"

namespace coda {

/// Fills a flat master segment (layout.count elements): matrices N(0, initializer_range), norm weights 1, padding 0.
/// Element i of Hugging Face tensor t depends on (seed, t, i) alone, so packing and padding do not change the model.
template <class T>
void initialise_weights(const ModelConfig& model, const ParameterLayout& layout, std::uint64_t seed,
                        std::span<T> master);

}  // namespace coda
