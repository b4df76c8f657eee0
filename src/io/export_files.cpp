#include "src/io/export_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "src/config/json_file.h"
#include "src/io/files.h"
#include "src/io/text_marks.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // a rewritten file keeps its order

void write_json(const fs::path& path, const Json& document) { replace_file(path, bytes_of(document.dump(2) + "\n")); }

Json sequence(const char* name, int type) { return {{"Sequence", {{"id", name}, {"type_id", type}}}}; }

/// Pieces of a template that put `names` before what `given` has from its first sequence on.
Json pieces(const std::vector<std::string>& names, const Json& given) {
    Json result = Json::array();
    for (const std::string& name : names) result.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    bool from_first = false;
    for (const Json& piece : given) {
        from_first = from_first || piece.contains("Sequence");
        if (from_first) result.push_back(piece);
    }
    return result;
}

/// The TemplateProcessing of a post-processor; null without one.
Json* template_of(Json& post_processor) {
    if (!post_processor.is_object()) return nullptr;
    if (post_processor.value("type", Json()) == "TemplateProcessing") return &post_processor;
    if (post_processor.value("type", Json()) != "Sequence" || !post_processor.contains("processors")) return nullptr;
    for (Json& part : post_processor["processors"]) {
        if (Json* found = template_of(part)) return found;
    }
    return nullptr;
}

/// Makes the template begin with the tokens of `start`. Changes nothing if a token has no name.
bool put_start(Json& tokenizer, const TokenizerFiles& files, const std::vector<std::int32_t>& start) {
    if (start == files.template_begin()) return false;
    std::vector<std::string> names;
    for (const std::int32_t token : start) {
        const std::optional<std::string> name = files.text_of(token);
        if (!name) return false;
        names.push_back(*name);
    }
    Json& post_processor = tokenizer["post_processor"];
    Json* given = template_of(post_processor);
    if (given == nullptr) {
        Json pair_rest = Json::array({sequence("A", 0)});
        for (const std::string& name : names) pair_rest.push_back({{"SpecialToken", {{"id", name}, {"type_id", 1}}}});
        pair_rest.push_back(sequence("B", 1));
        const Json made = {{"type", "TemplateProcessing"},
                           {"single", Json::array({sequence("A", 0)})},
                           {"pair", pair_rest},
                           {"special_tokens", Json::object()}};
        if (post_processor.is_null()) {
            post_processor = made;
        } else if (post_processor.value("type", Json()) == "Sequence") {
            post_processor["processors"].push_back(made);
        } else {
            post_processor = {{"type", "Sequence"}, {"processors", Json::array({post_processor, made})}};
        }
        given = template_of(post_processor);
    }
    (*given)["single"] = pieces(names, (*given)["single"]);
    (*given)["pair"] = pieces(names, (*given)["pair"]);
    for (std::size_t i = 0; i < names.size(); ++i) {
        (*given)["special_tokens"][names[i]] = {
            {"id", names[i]}, {"ids", Json::array({start[i]})}, {"tokens", Json::array({names[i]})}};
    }
    return true;
}

void complete_tokenizer(const fs::path& path, const TokenizerFiles& files, const std::vector<std::int32_t>& start) {
    // An ordered document compares each new key with all others, which takes 25 s for a vocabulary of 128,256
    // tokens. So the model is read by itself, in the order of its keys.
    constexpr const char* kModel = "model";
    const std::string document = read_file(path);
    Json tokenizer = Json::parse(document, [&](int depth, Json::parse_event_t event, const Json& parsed) {
        return depth != 1 || event != Json::parse_event_t::key || parsed != kModel;
    });
    bool changed = put_start(tokenizer, files, start);
    for (const char* key : {"truncation", "padding"}) {
        if (!tokenizer.contains(key) || tokenizer[key].is_null()) continue;
        tokenizer[key] = nullptr;
        changed = true;
    }
    if (!changed) return;
    tokenizer[kModel] = nlohmann::json::parse(document).at(kModel);
    write_json(path, tokenizer);
}

Json tokenizer_config(const TokenizerFiles& files, const ModelConfig& model) {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
    const auto put = [&](const char* key, std::int64_t token) {
        if (const auto name = files.added_text_of(static_cast<std::int32_t>(token))) config[key] = *name;
    };
    if (model.bos_token_id) put("bos_token", *model.bos_token_id);
    if (!model.eos_token_id.empty()) {
        put("eos_token", model.eos_token_id.front());
        put("pad_token", model.eos_token_id.front());
    }
    config["clean_up_tokenization_spaces"] = false;
    config["model_max_length"] = model.max_position_embeddings;
    return config;
}

/// Completes the run's tokenizer_config.json. Its class becomes PreTrainedTokenizerFast, which changes nothing in
/// tokenizer.json. LlamaTokenizerFast of transformers 4 would replace the template, and LlamaTokenizer and
/// GPT2Tokenizer of transformers 5 would build other steps. llama.cpp's converter reads add_bos_token and
/// add_eos_token, which PreTrainedTokenizerFast ignores.
void complete_settings(const fs::path& path, const TokenizerFiles& files, const ModelConfig& model,
                       bool begins_with_bos) {
    const Json before = Json::parse(read_file(path));
    if (!before.is_object()) return;
    Json settings = before;
    const Json made = tokenizer_config(files, model);
    settings["tokenizer_class"] = made["tokenizer_class"];
    for (const char* key : {"bos_token", "eos_token"}) {
        if (!settings.contains(key) && made.contains(key)) settings[key] = made[key];
    }
    if (settings.contains("add_bos_token")) settings["add_bos_token"] = begins_with_bos;
    if (settings.contains("add_eos_token")) settings["add_eos_token"] = false;
    if (settings != before) write_json(path, settings);
}

}  // namespace

void complete_export(const fs::path& folder, const ModelConfig& model) {
    const fs::path tokenizer = folder / "tokenizer.json", settings = folder / "tokenizer_config.json";
    const fs::path generation = folder / "generation_config.json", chat = folder / "chat_template.jinja";
    if (is_there(tokenizer)) {
        const TokenizerFiles files(tokenizer);
        const TextStart start = text_start(&files, {.model_bos = model.bos_token_id, .of_run = true});
        complete_tokenizer(tokenizer, files, start.tokens);
        if (!is_there(settings)) {
            write_json(settings, tokenizer_config(files, model));
        } else {
            const auto text = chat_template_text(read_json_file(settings.string()));
            if (text && !is_there(chat)) replace_file(chat, bytes_of(*text));
            complete_settings(settings, files, model, !start.tokens.empty());
        }
    }
    Json defaults = Json::object();
    if (model.bos_token_id) defaults["bos_token_id"] = *model.bos_token_id;
    if (!model.eos_token_id.empty()) {
        defaults["eos_token_id"] = model.eos_token_id;
        defaults["pad_token_id"] = model.eos_token_id.front();
    }
    if (defaults.empty()) return;
    if (!is_there(generation)) return write_json(generation, defaults);
    Json given = Json::parse(read_file(generation));
    if (!given.is_object() || model.eos_token_id.empty() ||
        given.value("eos_token_id", Json()) == defaults["eos_token_id"]) {
        return;
    }
    given["eos_token_id"] = defaults["eos_token_id"];
    write_json(generation, given);
}

}  // namespace coda
