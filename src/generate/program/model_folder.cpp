#include "src/generate/program/model_folder.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "src/config/json_file.h"
#include "src/config/recorded_run.h"
#include "src/core/errors.h"
#include "src/io/files.h"
#include "src/io/hf.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The configuration of a run; the weights are opened, and their folder locked, afterwards.
Config config_of_run(const fs::path& run) {
    std::string why;
    const json recorded = recorded_config(run, why);
    try {
        if (!recorded.is_null()) {
            Config config = parse_recorded_config(recorded, run.filename().string());
            config.output.directory = run.string();  // it may have been moved
            return config;
        }
    } catch (const std::exception& error) {
        why = error.what();
    }
    throw Error(text("--model: there is no complete checkpoint in ", (run / "checkpoints").string(),
                     why.empty() ? "" : "; ", why));
}

/// A configuration with the model of config.json; the sections of training have no meaning here.
Config config_of_hf(const fs::path& folder) {
    const std::string file = (folder / "config.json").string();
    const json section = model_section_from_hf_folder(folder.string());
    const json document = {{"model", section},
                           {"data", {{"train", "none.txt"}}},
                           {"training", {{"seq_len", 2}, {"micro_batch_size", 1}, {"steps", 1}}}};
    try {
        return parse_config(document, "generate");
    } catch (const Error& error) {
        throw Error(text(file, ": ", error.what()));
    }
}

}  // namespace

WeightsRequest ModelFolder::weights() const {
    return {.resume = run, .init_from = run ? std::nullopt : std::optional(folder)};
}

ChatForm ModelFolder::chat_form(std::function<std::string(const std::string& format)> now) const {
    std::optional<ChatForm> form = read_chat_form(beside_, std::move(now));
    require(form.has_value(), "a chat needs the model's chat template, and there is neither ",
            (beside_ / "chat_template.jinja").string(), " nor chat_template in ",
            (beside_ / "tokenizer_config.json").string(), "; is it a model for chats?");
    return std::move(*form);
}

ModelFolder open_model_folder(const std::string& name) {
    ModelFolder model;
    model.folder = name;
    std::error_code ignored;
    require(fs::is_directory(name, ignored), "--model: there is no folder ", name);
    model.run = !is_there(model.folder / "config.json") && !is_there(model.folder / "adapter_config.json");
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
    model.generation = generation_config_in(model.beside_);
    const std::vector<std::int64_t>& ends = model.config.model.eos_token_id;
    if (!ends.empty()) model.generation.end_tokens.assign(ends.begin(), ends.end());
    return model;
}

}  // namespace coda
