#include "src/tokenize/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "src/config/json_file.h"
#include "src/io/files.h"
#include "src/tokenize/normalizer.h"
#include "src/tokenize/pipeline_json.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kCure =
    "; in a folder DIR without one, AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers makes it";

void check_post_processor(const JsonPart& part) {
    each_step(part, "processors", [](const JsonPart& step) {
        const std::string type = step.type();
        if (type != "ByteLevel" && type != "TemplateProcessing") {
            step.unsupported(text("the post-processor ", type), "this program has TemplateProcessing and ByteLevel");
        }
    });
}

/// Room for the bytes of `id`.
std::optional<std::string>& entry_of(TokenizerSpec& spec, std::uint32_t id) {
    if (id >= spec.bytes.size()) spec.bytes.resize(std::size_t{id} + 1);
    return spec.bytes[id];
}

void read_vocabulary(const JsonPart& part, const TokenDecoder& decoder, TokenizerSpec& spec) {
    part.require_that(part.object().size() <= JsonPart::kMaxIds, "more than ", JsonPart::kMaxIds, " tokens");
    spec.vocabulary.reserve(part.value.size());
    for (const auto& [token, value] : part.value.items()) {
        const JsonPart entry = part.entry(token, value);
        const std::uint32_t id = entry.id();
        entry.require_that(!token.empty(), "the empty text is not a token");
        std::optional<std::string>& bytes = entry_of(spec, id);
        entry.require_that(!bytes, "id ", id, " is given to two tokens");
        bytes = decoder.bytes_of(token, false);
        decoder.add_start(token, id, spec.start);
        spec.vocabulary.emplace(token, id);
    }
}

std::uint32_t token_id(const JsonPart& part, const TokenizerSpec& spec, const std::string& token) {
    const auto found = spec.vocabulary.find(token);
    part.require_that(found != spec.vocabulary.end(), "\"", token, "\" is not in the vocabulary");
    return found->second;
}

Merge read_merge(const JsonPart& part, const TokenizerSpec& spec) {
    std::array<std::string, 2> pair;
    if (part.value.is_array()) {
        part.require_that(part.value.size() == 2, "a pair of tokens is expected");
        pair = {part.element(0).string(), part.element(1).string()};
    } else {
        const std::string both = part.string();
        const std::size_t space = both.find(' ');
        part.require_that(space != std::string::npos && both.find(' ', space + 1) == std::string::npos,
                          "two tokens with one space between are expected, not \"", both, "\"");
        pair = {both.substr(0, space), both.substr(space + 1)};
    }
    return {token_id(part, spec, pair[0]), token_id(part, spec, pair[1]), token_id(part, spec, pair[0] + pair[1])};
}

/// Null, or "" as Qwen2 writes it.
void check_no_affix(const JsonPart& part) {
    if (!part.is_null() && !part.string().empty()) {
        part.unsupported("a marker of word pieces", "the models that this program trains have none");
    }
}

void read_model(const JsonPart& part, const TokenDecoder& decoder, TokenizerSpec& spec) {
    part.object();
    // Early files have no type; one with merges is BPE.
    const std::string type = part["type"].is_null() && part.value.contains("merges") ? "BPE" : part.type();
    if (type != "BPE") part.unsupported(text("the model ", type), "this program has BPE");
    const JsonPart dropout = part["dropout"];
    const bool no_dropout = dropout.is_null() || (dropout.value.is_number() && dropout.value.get<double>() == 0);
    if (!no_dropout) dropout.unsupported("dropout", "it makes tokens random; set it to null");
    check_no_affix(part["continuing_subword_prefix"]);
    check_no_affix(part["end_of_word_suffix"]);
    spec.ignore_merges = part["ignore_merges"].flag(false);
    spec.byte_fallback = part["byte_fallback"].flag(false);
    if (!part["unk_token"].is_null()) spec.unk_token = part["unk_token"].string();
    spec.fuse_unk = part["fuse_unk"].flag(false);
    read_vocabulary(part["vocab"], decoder, spec);
    const JsonPart merges = part["merges"];
    spec.merges.reserve(merges.array().size());
    for (std::size_t i = 0; i < merges.value.size(); ++i) {
        spec.merges.push_back(read_merge(merges.element(i), spec));
    }
}

AddedToken added_token(const JsonPart& part, std::uint32_t id) {
    AddedToken token{.id = id, .content = part["content"].string()};
    part.require_that(!token.content.empty(), "the empty text is not a token");
    token.special = part["special"].flag(false);
    token.normalized = part["normalized"].flag(!token.special);
    token.single_word = part["single_word"].flag(false);
    token.lstrip = part["lstrip"].flag(false);
    token.rstrip = part["rstrip"].flag(false);
    return token;
}

/// Reads added tokens one after the other, each with the id that the library would give it.
class AddedTokenReader {
  public:
    explicit AddedTokenReader(TokenizerSpec& spec)
        : spec_(spec), next_(static_cast<std::uint32_t>(spec.vocabulary.size())) {}

    void add(const JsonPart& part, const AddedToken& token) {
        const auto known = spec_.vocabulary.find(token.content);
        const std::uint32_t id = known != spec_.vocabulary.end() ? known->second : next_;
        part.require_that(token.id == id, token.content, " has id ", token.id,
                          " here, but the library gives it the id ", id,
                          known != spec_.vocabulary.end() ? " of the vocabulary" : ", the next free one");
        std::optional<std::string>& bytes = entry_of(spec_, id);
        part.require_that(known != spec_.vocabulary.end() || !bytes, "id ", id, " of ", token.content,
                          " is the id of another token");
        bytes = token.content;
        next_ = std::max(next_, id + 1);
        place_.emplace(token.content, spec_.added.size());
        spec_.added.push_back(token);
    }

    /// The token with this text that has been added; null if there is none.
    AddedToken* find(const std::string& content) {
        const auto found = place_.find(content);
        return found == place_.end() ? nullptr : &spec_.added[found->second];
    }

  private:
    TokenizerSpec& spec_;
    std::uint32_t next_;
    std::unordered_map<std::string, std::size_t> place_;
};

void read_added_tokens(const JsonPart& part, AddedTokenReader& reader) {
    if (part.is_null()) return;
    for (std::size_t i = 0; i < part.array().size(); ++i) {
        const JsonPart element = part.element(i);
        const AddedToken token = added_token(element, element["id"].id());
        element.require_that(reader.find(token.content) == nullptr, token.content, " is given twice");
        reader.add(element, token);
    }
}

/// added_tokens_decoder of tokenizer_config.json: {"id": token}.
void read_config_tokens(const JsonPart& part, AddedTokenReader& reader) {
    if (part.is_null()) return;
    std::map<std::uint32_t, std::pair<JsonPart, AddedToken>> tokens;  // in the order of their ids
    for (const auto& [key, value] : part.object().items()) {
        const JsonPart entry = part.entry(key, value);
        std::uint32_t id = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        entry.require_that(error == std::errc() && end == key.data() + key.size() && id < JsonPart::kMaxIds,
                           "a token id is expected");
        tokens.try_emplace(id, entry, added_token(entry, id));
    }
    for (const auto& [id, given] : tokens) {
        const auto& [entry, token] = given;
        AddedToken* known = reader.find(token.content);
        if (known == nullptr) {
            reader.add(entry, token);
            continue;
        }
        entry.require_that(known->id == id, token.content, " has id ", id, " here and ", known->id,
                           " in tokenizer.json");
        *known = token;
    }
}

/// What added tokens are decoded to: a normalized one's text as the normalizer leaves it, but for a byte-level
/// vocabulary.
void decode_added_tokens(const TokenDecoder& decoder, TokenizerSpec& spec) {
    const Normalizer normalizer(spec.normalizer);
    for (const AddedToken& token : spec.added) {
        std::string storage;
        const bool changes = token.normalized && !spec.byte_level;
        const std::string content(changes ? normalizer.apply(token.content, true, storage) : token.content);
        spec.bytes[token.id] = decoder.bytes_of(content, true);
        decoder.add_start(content, token.id, spec.start);
    }
}

}  // namespace

TokenizerSpec parse_tokenizer(const std::string& content, const std::string& file, const std::string& config) {
    json document = parse_json_text(content, file);
    const JsonPart root{document, file + ":"};
    require(document.is_object() && document.contains("model"), file,
            ": not a tokenizer.json, which is an object with the key \"model\"", kCure);
    TokenizerSpec spec{.file = file};
    read_normalizer(root["normalizer"], spec);
    read_pre_tokenizer(root["pre_tokenizer"], spec);
    check_post_processor(root["post_processor"]);
    const TokenDecoder decoder(root["decoder"], spec.byte_level);
    read_model(root["model"], decoder, spec);
    AddedTokenReader added(spec);
    read_added_tokens(root["added_tokens"], added);
    if (!config.empty()) {
        const std::string name = (fs::path(file).parent_path() / "tokenizer_config.json").string();
        const json settings = parse_json_text(config, name);
        read_config_tokens(JsonPart{settings, name + ":"}["added_tokens_decoder"], added);
    }
    decode_added_tokens(decoder, spec);
    document.erase("model");
    spec.document = std::move(document);
    return spec;
}

TokenizerSpec read_tokenizer(const std::string& path) {
    require(fs::path(path).extension() != ".model", path, ": a sentencepiece model, not a tokenizer.json", kCure);
    const fs::path beside = fs::path(path).parent_path() / "tokenizer_config.json";
    std::error_code ignored;
    const bool has_config = fs::path(path).filename() == "tokenizer.json" && fs::exists(beside, ignored);
    return parse_tokenizer(read_file(path), path, has_config ? read_file(beside) : "");
}

}  // namespace coda
