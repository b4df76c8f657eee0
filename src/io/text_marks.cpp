#include "src/io/text_marks.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "src/config/json_file.h"
#include "src/core/errors.h"
#include "src/io/files.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostId = (std::uint64_t{1} << 31) - 1;

/// The object in `folder`/`name`; null without such a file.
json object_beside(const fs::path& folder, const char* name) {
    const fs::path path = folder / name;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return {};
    json document = read_json_file(path.string());
    require(document.is_object(), path.string(), ": expected a JSON object, found ", document.type_name());
    return document;
}

/// A member of a value that may be no object; null where there is none.
const json& member(const json& object, const char* key) {
    static const json kNull;
    if (!object.is_object()) return kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
}

/// A token's text: a string, or an added token's object.
std::optional<std::string> token_text(const json& value) {
    const json& content = value.is_object() ? member(value, "content") : value;
    return content.is_string() ? std::optional(content.get<std::string>()) : std::nullopt;
}

bool begins(const std::string& name, std::initializer_list<const char*> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
}

std::string names_of(const std::vector<std::int32_t>& tokens, const TokenizerFiles* files) {
    if (tokens.empty()) return "no token";
    std::string names;
    for (const std::int32_t token : tokens) {
        const std::optional<std::string> name = files ? files->text_of(token) : std::nullopt;
        names += text(names.empty() ? "" : ", ", name.value_or("token"), name ? " (" : " ", token, name ? ")" : "");
    }
    return names;
}

}  // namespace

TokenizerFiles::TokenizerFiles(const fs::path& tokenizer_json)
    : TokenizerFiles(tokenizer_json, parse_json_text(read_file(tokenizer_json), tokenizer_json.string())) {}

TokenizerFiles::TokenizerFiles(const fs::path& tokenizer_json, json document, Vocabulary vocabulary)
    : file_(tokenizer_json.string()), vocabulary_(std::move(vocabulary)), tokenizer_(std::move(document)) {
    read_template(member(tokenizer_, "post_processor"));
    if (tokenizer_json.filename() != "tokenizer.json") return;
    settings_ = object_beside(tokenizer_json.parent_path(), "tokenizer_config.json");
    special_ = object_beside(tokenizer_json.parent_path(), "special_tokens_map.json");
}

void TokenizerFiles::read_template(const json& post_processor) {
    if (member(post_processor, "type") == "Sequence") {
        const json& parts = member(post_processor, "processors");
        for (const json& part : parts.is_array() ? parts : json::array()) read_template(part);
        return;
    }
    if (member(post_processor, "type") != "TemplateProcessing") return;
    const std::string place = file_ + ": post_processor: ";
    const json& single = member(post_processor, "single");
    require(single.is_array(), place, "single: expected a list");
    has_template_ = true;
    bool before = true;
    for (const json& piece : single) {
        if (piece.is_object() && piece.contains("Sequence")) {
            before = false;
            continue;
        }
        const std::optional<std::string> name = token_text(member(member(piece, "SpecialToken"), "id"));
        require(name.has_value(), place, "single: expected SpecialToken and Sequence");
        const json& ids = member(member(member(post_processor, "special_tokens"), name->c_str()), "ids");
        require(ids.is_array(), place, "special_tokens has no ids of ", *name);
        for (const json& id : ids) {
            require(id.is_number_unsigned() && id.get<std::uint64_t>() <= kMostId, place, "ids of ", *name,
                    ": expected token ids");
            (before ? template_before_ : template_after_).push_back(id.get<std::int32_t>());
        }
    }
}

std::optional<std::int32_t> TokenizerFiles::id_of(const std::string& token) const {
    const auto taken = [](const json& id) {
        return id.is_number_unsigned() && id.get<std::uint64_t>() <= kMostId ? std::optional(id.get<std::int32_t>())
                                                                             : std::nullopt;
    };
    const json& added = member(tokenizer_, "added_tokens");
    for (const json& each : added.is_array() ? added : json::array()) {
        if (member(each, "content") == token) return taken(member(each, "id"));
    }
    if (vocabulary_) {
        const std::optional<std::uint32_t> id = vocabulary_(token);
        return id && *id <= kMostId ? std::optional(static_cast<std::int32_t>(*id)) : std::nullopt;
    }
    return taken(member(member(member(tokenizer_, "model"), "vocab"), token.c_str()));
}

std::optional<std::string> TokenizerFiles::added_text_of(std::int32_t id) const {
    const json& added = member(tokenizer_, "added_tokens");
    for (const json& each : added.is_array() ? added : json::array()) {
        if (member(each, "id") == id) return token_text(each);
    }
    return std::nullopt;
}

std::optional<std::string> TokenizerFiles::text_of(std::int32_t id) const {
    if (std::optional<std::string> added = added_text_of(id)) return added;
    const json& vocab = member(member(tokenizer_, "model"), "vocab");
    if (!vocab.is_object()) return std::nullopt;
    for (const auto& [token, value] : vocab.items()) {
        if (value == id) return token;
    }
    return std::nullopt;
}

std::string TokenizerFiles::tokenizer_class() const {
    const json& name = member(settings_, "tokenizer_class");
    return name.is_string() ? name.get<std::string>() : "";
}

bool TokenizerFiles::names_bos() const {
    return settings_.is_object() && (settings_.contains("tokenizer_class") || settings_.contains("bos_token"));
}

std::optional<std::string> TokenizerFiles::named(const char* key) const {
    if (settings_.is_object() && settings_.contains(key)) return token_text(settings_[key]);
    if (special_.is_object() && special_.contains(key)) return token_text(special_[key]);
    return std::nullopt;
}

std::optional<std::string> TokenizerFiles::bos_text() const {
    const bool given = (settings_.is_object() && settings_.contains("bos_token")) ||
                       (special_.is_object() && special_.contains("bos_token"));
    if (given) return named("bos_token");
    if (begins(tokenizer_class(), {"Llama", "CodeLlama"})) return "<s>";
    if (begins(tokenizer_class(), {"GPTNeoX"})) return "<|endoftext|>";
    return std::nullopt;
}

std::optional<std::int32_t> TokenizerFiles::bos() const {
    const std::optional<std::string> token = bos_text();
    return token ? id_of(*token) : std::nullopt;
}

std::optional<std::int32_t> TokenizerFiles::eos() const {
    const std::optional<std::string> token = named("eos_token");
    return token ? id_of(*token) : std::nullopt;
}

std::optional<TokenizerFiles::Marks> TokenizerFiles::begin() const {
    const std::string name = tokenizer_class();
    const bool llama = begins(name, {"Llama", "CodeLlama"}), neox = begins(name, {"GPTNeoX"});
    const json& add = member(settings_, "add_bos_token");
    const auto with_bos = [&](std::string reason) {
        const std::optional<std::int32_t> token = bos();
        if (!token) reason += ", but there is no such token";
        return Marks{token ? std::vector{*token} : std::vector<std::int32_t>{}, reason};
    };
    if ((llama || neox) && add.is_boolean()) {
        const std::string reason = text("tokenizer_config.json has add_bos_token ", add.dump(), " for a ", name);
        return add.get<bool>() ? with_bos(reason) : Marks{{}, reason};
    }
    if (neox) return Marks{{}, text("that is the default of ", name, " in tokenizer_config.json")};
    if (has_template_) return Marks{template_before_, "tokenizer.json's template says so"};
    if (llama) return with_bos(text("that is the default of ", name, " in tokenizer_config.json"));
    return std::nullopt;
}

std::optional<std::string> chat_template_text(const json& settings) {
    const json& given = member(settings, "chat_template");
    if (given.is_string()) return given.get<std::string>();
    for (const json& named : given.is_array() ? given : json::array()) {
        const json& content = member(named, "template");
        if (member(named, "name") == "default" && content.is_string()) return content.get<std::string>();
    }
    return std::nullopt;
}

TextStart text_start(const TokenizerFiles* files, const TextStartOptions& options) {
    const auto model_bos = [&] {
        return options.model_bos ? std::vector{static_cast<std::int32_t>(*options.model_bos)}
                                 : std::vector<std::int32_t>{};
    };
    const auto noted = [&](std::vector<std::int32_t> tokens, const std::string& reason) {
        std::string note = text("a text begins with ", names_of(tokens, files), ", because ", reason);
        return TextStart{std::move(tokens), std::move(note)};
    };
    if (options.forced == false) return noted({}, "--bos no is given");
    std::optional<TokenizerFiles::Marks> marks = files ? files->begin() : std::nullopt;
    if (options.forced == true) {
        std::vector<std::int32_t> tokens = marks ? marks->tokens : std::vector<std::int32_t>{};
        if (tokens.empty() && files && files->bos()) tokens = {*files->bos()};
        if (tokens.empty()) tokens = model_bos();
        if (tokens.empty()) throw UsageError("--bos yes: neither the tokenizer nor the model has such a token");
        return noted(std::move(tokens), "--bos yes is given");
    }
    if (marks) return noted(std::move(marks->tokens), marks->reason);
    if (!files) return {model_bos(), ""};
    if (options.of_run && !files->names_bos() && options.model_bos) {
        return noted(model_bos(), "it is model.bos_token_id, and the tokenizer says nothing of it");
    }
    return noted({}, "tokenizer_config.json and tokenizer.json ask for none");
}

void begin_text(const std::vector<std::int32_t>& start, std::vector<std::int32_t>& tokens) {
    const bool begun = tokens.size() >= start.size() && std::equal(start.begin(), start.end(), tokens.begin());
    if (!begun) tokens.insert(tokens.begin(), start.begin(), start.end());
}

DocumentMarks document_marks(const TokenizerFiles& files) {
    constexpr std::pair<const char*, const char*> kKnown[] = {
        {"<|begin_of_text|>", "<|end_of_text|>"}, {"<s>", "</s>"}, {"<|endoftext|>", nullptr}};
    DocumentMarks marks;
    const std::optional<TokenizerFiles::Marks> begin = files.begin();
    if (begin) marks.begin = *begin;
    if (!files.template_end().empty()) marks.end = {files.template_end(), "tokenizer.json's template says so"};
    for (const auto& [first, last] : kKnown) {
        const std::optional<std::int32_t> id = files.id_of(first);
        if (!id) continue;
        if (!begin) marks.begin = {{*id}, "the tokenizer has this token"};
        if (!marks.end.tokens.empty() || last == nullptr) break;
        if (const auto end = files.id_of(last)) marks.end = {{*end}, text("it belongs to ", first)};
        break;
    }
    for (TokenizerFiles::Marks* each : {&marks.begin, &marks.end}) {
        each->reason = text(each == &marks.begin ? "a document begins with " : "a document ends with ",
                            names_of(each->tokens, &files), each->reason.empty() ? "" : ", because ", each->reason);
    }
    return marks;
}

}  // namespace coda
