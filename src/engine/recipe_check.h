// Whether the weights of a checkpoint fit a configuration.
#pragma once

#include <nlohmann/json.hpp>

#include "src/config/config.h"
#include "src/core/console.h"

namespace coda {

/// Compares the configuration that a checkpoint was written with, `state.config`. Throws UsageError naming a key that
/// its weights or moments depend on and that is another now. Notes every other key that bears on training.
void check_recipe(const Config& config, const nlohmann::json& state, Console& console);

}  // namespace coda
