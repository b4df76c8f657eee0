// RoPE in a Hugging Face config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "src/config/hf_reader.h"

namespace coda {

/// Puts rope_theta and rope_scaling into the model section, which has max_position_embeddings. Throws Error naming file
/// and key for a scaling that this program does not have, and where the file has two that disagree.
void put_rope(const HfConfig& hf, nlohmann::json& section);

}  // namespace coda
