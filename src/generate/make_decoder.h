// A model with its weights, ready to generate.
#pragma once

#include <memory>

#include "src/core/decoder_options.h"
#include "src/engine/weights_source.h"
#include "src/generate/batch_decoder.h"

namespace coda {

/// Only the model and the device of `config` count. Allocates weights, cache and work space for shape.batch sequences
/// (1 to kMostSequences; with options.lookup to kMostLookupSequences) of shape.context positions, and loads the
/// weights; 4-bit integers stay what they are. Throws Error if the device or its memory does not allow it, or not the
/// decoder that is asked for.
std::unique_ptr<BatchDecoder> make_decoder(const Config& config, const GenerationShape& shape,
                                           const WeightsSource& weights, const DecoderOptions& options,
                                           Console& console);

}  // namespace coda
