#include "src/config/recorded_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "src/config/json_file.h"
#include "src/config/schema.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

/// The checkpoints of a run, the newest first.
std::vector<fs::path> checkpoints_of(const fs::path& run) {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
        if (entry.path().filename().string().starts_with("step_")) found.push_back(entry.path());
    }
    std::sort(found.rbegin(), found.rend());
    return found;
}

}  // namespace

nlohmann::json recorded_config(const fs::path& run, std::string& why) {
    for (const fs::path& checkpoint : checkpoints_of(run)) {
        try {
            return read_json_file((checkpoint / "meta.json").string()).at("state").at("config");
        } catch (const std::exception& error) {
            why = error.what();
        }
    }
    return {};
}

bool take_recorded(nlohmann::json& document, const std::string& name) {
    Config config;
    config.output.directory = default_directory(name);
    const Key& directory = key_of("output", "directory");
    if (const nlohmann::json* given = directory.find(document)) directory.read(*given, directory.path(), config);
    std::string ignored;
    const nlohmann::json recorded = recorded_config(config.output.directory, ignored);
    if (!recorded.is_object()) return false;
    const bool lacks = std::any_of(schema().begin(), schema().end(), [&](const Key& key) {
        return key.section == "model" && key.required && key.find(document) == nullptr;
    });
    const fs::path kept = fs::path(config.output.directory) / "tokenizer" / "tokenizer.json";
    std::error_code unreadable;
    for (const Key& key : schema()) {
        const bool is_tokenizer = key.path() == "data.tokenizer";
        // By default the longest sequence is training.seq_len, which may change.
        const bool of_model = key.section == "model" && (lacks || key.name != "max_position_embeddings");
        if ((!of_model && !is_tokenizer) || key.find(document) != nullptr) continue;
        if (is_tokenizer && fs::exists(kept, unreadable)) {
            key.put(document, kept.string());
        } else if (const nlohmann::json* value = key.find(recorded)) {
            key.put(document, *value);
        }
    }
    return true;
}

}  // namespace coda
