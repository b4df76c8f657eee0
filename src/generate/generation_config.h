// generation_config.json of a Hugging Face folder: what ends a text, and how its tokens are chosen.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/math/sampling.h"

namespace coda {

struct GenerationConfig {
    std::vector<std::int32_t> end_tokens{};  // eos_token_id, a number or a list
    // What the file says, if anything. "do_sample": false makes the temperature 0.
    std::optional<float> temperature{}, top_p{}, min_p{}, repetition_penalty{};
    std::optional<std::int32_t> top_k{};
    std::vector<std::string> stop{};     // stop_strings
    std::vector<std::string> ignored{};  // other keys that would change the text, such as "num_beams"

    /// `choice` with what the file says.
    ChoiceOptions over(ChoiceOptions choice) const;
};

/// Throws Error "FILE: KEY: ..." for a value of the wrong type or out of range.
GenerationConfig parse_generation_config(const nlohmann::json& json, const std::string& file);

/// Parses the file in `folder`; without the file, all is absent.
GenerationConfig generation_config_in(const std::filesystem::path& folder);

}  // namespace coda
