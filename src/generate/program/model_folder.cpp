#include "src/generate/program/model_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/config/json_file.h"
#include "src/core/errors.h"
#include "src/io/files.h"
#include "src/io/hf.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

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

/// The configuration of a run, as its newest readable checkpoint has it; the weights are opened, and their folder
/// locked, afterwards. Every checkpoint of a run has the same model.
Config config_of_run(const fs::path& run) {
    std::string last;
    for (const fs::path& checkpoint : checkpoints_of(run)) {
        try {
            const json meta = read_json_file((checkpoint / "meta.json").string());
            Config config = parse_recorded_config(meta.at("state").at("config"), run.filename().string());
            config.output.directory = run.string();  // it may have been moved
            return config;
        } catch (const std::exception& error) {
            last = text("; ", error.what());
        }
    }
    throw Error(text("--model: there is no complete checkpoint in ", (run / "checkpoints").string(), last));
}

/// A configuration with the model of config.json; the sections of training have no meaning here.
Config config_of_hf(const fs::path& folder) {
    const std::string file = (folder / "config.json").string();
    const json section = model_section_from_hf(read_hf_config(folder), file);
    const json document = {{"model", section},
                           {"data", {{"train", "none.txt"}}},
                           {"training", {{"seq_len", 2}, {"micro_batch_size", 1}, {"steps", 1}}}};
    try {
        return parse_config(document, "generate");
    } catch (const Error& error) {
        throw Error(text(file, ": ", error.what()));
    }
}

/// eos_token_id of config.json, which is a number or a list.
std::vector<std::int32_t> end_tokens_of(const fs::path& folder) {
    const std::string file = (folder / "config.json").string();
    const json document = read_hf_config(folder);
    if (!document.contains("eos_token_id")) return {};
    return parse_generation_config({{"eos_token_id", document["eos_token_id"]}}, file).end_tokens;
}

}  // namespace

WeightsRequest ModelFolder::weights() const {
    return {.resume = run, .init_from = run ? std::nullopt : std::optional(folder)};
}

ChatTemplate ModelFolder::chat_template() const {
    const fs::path jinja = beside_ / "chat_template.jinja", settings = beside_ / "tokenizer_config.json";
    if (is_there(jinja)) return recognise_chat_template(read_file(jinja), jinja.string());
    const std::string where = settings.string() + ": chat_template";
    if (is_there(settings)) {
        const json document = read_json_file(settings.string());
        const json given = document.is_object() ? document.value("chat_template", json()) : json();
        if (given.is_string()) return recognise_chat_template(given.get<std::string>(), where);
        for (const json& named : given.is_array() ? given : json::array()) {
            if (!named.is_object() || named.value("name", json()) != "default") continue;
            require(named.contains("template") && named["template"].is_string(), where, ": \"default\" is no text");
            return recognise_chat_template(named["template"].get<std::string>(), where);
        }
        require(given.is_null(), where, ": expected a text, or a list of templates with one named \"default\"");
    }
    throw Error(text("a chat needs the model's chat template, and there is neither ", jinja.string(),
                     " nor chat_template in ", settings.string(), "; is it a model for chats?"));
}

ModelFolder open_model_folder(const std::string& name) {
    ModelFolder model;
    model.folder = name;
    std::error_code ignored;
    require(fs::is_directory(name, ignored), "--model: there is no folder ", name);
    model.run = !is_there(model.folder / "config.json");
    if (model.run) {
        require(is_there(model.folder / "checkpoints"), "--model: ", name,
                " has neither config.json, as a Hugging Face folder, nor checkpoints, as a run's");
        model.config = config_of_run(model.folder);
        model.beside_ = model.folder / "tokenizer";
        if (is_there(model.beside_ / "tokenizer.json")) {
            model.tokenizer = model.beside_ / "tokenizer.json";
        } else if (model.config.data.tokenizer) {
            model.tokenizer = *model.config.data.tokenizer;
        }
    } else {
        model.config = config_of_hf(model.folder);
        model.beside_ = model.folder;
        if (is_there(model.folder / "tokenizer.json")) model.tokenizer = model.folder / "tokenizer.json";
    }
    const fs::path generation = model.beside_ / "generation_config.json";
    if (is_there(generation)) {
        model.generation = parse_generation_config(read_json_file(generation.string()), generation.string());
    }
    if (model.generation.end_tokens.empty() && !model.run) model.generation.end_tokens = end_tokens_of(model.folder);
    if (model.generation.end_tokens.empty() && model.config.model.eos_token_id) {
        model.generation.end_tokens.push_back(static_cast<std::int32_t>(*model.config.model.eos_token_id));
    }
    const fs::path tokenizer_config = model.beside_ / "tokenizer_config.json";
    if (is_there(tokenizer_config)) {
        const json document = read_json_file(tokenizer_config.string());
        const auto says_none = [&](const char* key, const json& value) {
            return document.is_object() && document.contains(key) && document[key] == value;
        };
        model.adds_bos = !says_none("add_bos_token", false) && !says_none("bos_token", nullptr);
    }
    return model;
}

}  // namespace coda
