// A model with its weights, ready to generate.
#pragma once

#include <memory>

#include "src/generate/decoder.h"
#include "src/train/weights_source.h"

namespace coda {

/// Of `config` the model and the device count. Allocates weights, cache and work space for shape.slots sequences (1 to
/// 8) of shape.context positions, and loads the weights. Throws Error where device or memory do not allow it.
std::unique_ptr<Decoder> make_decoder(const Config& config, const GenerationShape& shape, const WeightsSource& weights,
                                      Console& console);

}  // namespace coda
