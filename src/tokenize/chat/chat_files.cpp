#include "src/tokenize/chat/chat_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/core/error.h"
#include "src/config/json_file.h"
#include "src/io/files.h"
#include "src/io/text_marks.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A JSON object; null where the file is not there or has something else.
json object_in(const fs::path& file) {
    if (!is_there(file)) return {};
    json document = read_json_file(file.string());
    return document.is_object() ? document : json();
}

std::optional<ChatTemplate> read_template(const fs::path& folder) {
    const fs::path jinja = folder / "chat_template.jinja", settings = folder / "tokenizer_config.json";
    if (is_there(jinja)) return ChatTemplate(read_file(jinja), jinja.string());
    const std::string where = settings.string() + ": chat_template";
    const json document = object_in(settings);
    if (const auto found = chat_template_text(document)) return ChatTemplate(*found, where);
    const bool none = !document.is_object() || document.value("chat_template", json()).is_null();
    require(none, where, ": expected a text, or a list of templates with one named \"default\"");
    return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> named_tokens(const fs::path& folder) {
    std::vector<std::pair<std::string, std::string>> tokens;
    const auto known = [&](const std::string& name) {
        return std::any_of(tokens.begin(), tokens.end(), [&](const auto& token) { return token.first == name; });
    };
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
        const json document = object_in(folder / file);
        for (const char* kind : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
            const std::string name = std::string(kind) + "_token";
            json token = document.is_object() ? document.value(name, json()) : json();
            if (token.is_object()) token = token.value("content", json());
            if (token.is_string() && !known(name)) tokens.emplace_back(name, token.get<std::string>());
        }
    }
    return tokens;
}

}  // namespace

std::optional<ChatForm> read_chat_form(const fs::path& folder,
                                       std::function<std::string(const std::string& format)> now) {
    std::optional<ChatTemplate> jinja = read_template(folder);
    if (!jinja) return std::nullopt;
    return ChatForm{std::move(*jinja), {.tokens = named_tokens(folder), .now = std::move(now)}};
}

}  // namespace coda
