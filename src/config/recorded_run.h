// The configuration that a run's folder records.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace coda {

/// The configuration of the run in `run`, as its newest readable checkpoint has it; every checkpoint of a run has the
/// same model. Null without one; `why` is then the reason if the newest cannot be read.
nlohmann::json recorded_config(const std::filesystem::path& run, std::string& why);

/// Completes the `document` of a run that continues, which needs nothing but its own folder: absent keys of the model
/// section are the recorded ones (max_position_embeddings only if a required key is absent), and an absent
/// data.tokenizer is the run's copy. `name` as of parse_config. Returns false, and does nothing, if no checkpoint is
/// there. Throws UsageError for an output.directory that is no path.
bool take_recorded(nlohmann::json& document, const std::string& name);

}  // namespace coda
