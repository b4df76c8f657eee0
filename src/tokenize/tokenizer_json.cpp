#include "src/tokenize/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "kernels/core/error.h"
#include "src/config/json_file.h"
#include "src/core/utf8.h"
#include "src/io/files.h"
#include "src/tokenize/byte_alphabet.h"

namespace coda {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxVocabulary = std::uint64_t{1} << 22;
const json kNull;

/// A part of the file with its place, for messages.
struct Part {
    const json& value;
    std::string where;  // "tokenizer.json: model.vocab"

    template <class... Words>
    void require_that(bool condition, const Words&... words) const {
        require(condition, where, ": ", words...);
    }
    const json& object() const {
        require_that(value.is_object(), "an object is expected");
        return value;
    }
    const json& array() const {
        require_that(value.is_array(), "a list is expected");
        return value;
    }
    Part operator[](const char* key) const {
        const auto found = object().find(key);
        return {found == value.end() ? kNull : *found, text(where, where.ends_with(":") ? " " : ".", key)};
    }
    Part element(std::size_t i) const { return {value[i], text(where, "[", i, "]")}; }
    std::string string() const {
        require_that(value.is_string(), "a string is expected");
        return value.get<std::string>();
    }
    bool flag(bool fallback) const {
        if (value.is_null()) return fallback;
        require_that(value.is_boolean(), "true or false is expected");
        return value.get<bool>();
    }
    std::uint32_t id() const {
        require_that(value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxVocabulary, "a token id from 0 to ",
                     kMaxVocabulary - 1, " is expected");
        return value.get<std::uint32_t>();
    }
    std::string type() const { return (*this)["type"].string(); }
    [[noreturn]] void unsupported(const std::string& what, const char* instead) const {
        throw Error(text(where, ": ", what, " is not supported; ", instead));
    }
};

constexpr const char* kFamilies =
    "this program reads the byte-level BPE of GPT-2, Llama-3 and Qwen2; tokenize with the tokenizer's own library";

void read_normalizer(const Part& part, TokenizerSpec& spec) {
    if (part.value.is_null()) return;
    if (part.type() != "NFC") part.unsupported(text("the normalizer ", part.type()), kFamilies);
    spec.nfc = true;
}

void check_byte_level(const Part& part, bool use_regex) {
    if (part["add_prefix_space"].flag(true)) part.unsupported("ByteLevel with add_prefix_space", kFamilies);
    if (part["use_regex"].flag(true) != use_regex) {
        part.unsupported(
            use_regex ? "ByteLevel without a regular expression" : "ByteLevel with use_regex after a Split", kFamilies);
    }
}

void read_pre_tokenizer(const Part& part, TokenizerSpec& spec) {
    if (part.value.is_null()) part.unsupported("no pre-tokenizer", kFamilies);
    const std::string type = part.type();
    if (type == "ByteLevel") {
        check_byte_level(part, true);
        spec.regex = kGpt2Regex;
        return;
    }
    if (type != "Sequence") part.unsupported(text("the pre-tokenizer ", type), kFamilies);
    const Part list = part["pretokenizers"];
    std::string types;
    for (std::size_t i = 0; i < list.array().size(); ++i) types += (i > 0 ? ", " : "") + list.element(i).type();
    if (types != "Split, ByteLevel") part.unsupported(text("a Sequence of [", types, "]"), kFamilies);
    const Part split = list.element(0);
    if (!split["pattern"].object().contains("Regex")) {
        split.unsupported("a Split by a pattern other than Regex", kFamilies);
    }
    if (split["behavior"].string() != "Isolated") {
        split.unsupported(text("a Split with behavior ", split["behavior"].string()), kFamilies);
    }
    if (split["invert"].flag(false)) split.unsupported("a Split with invert", kFamilies);
    spec.regex = split["pattern"]["Regex"].string();
    check_byte_level(list.element(1), false);
}

void check_post_processor(const Part& part) {
    if (part.value.is_null()) return;
    const std::string type = part.type();
    if (type == "Sequence") {
        const Part list = part["processors"];
        for (std::size_t i = 0; i < list.array().size(); ++i) check_post_processor(list.element(i));
    } else if (type != "ByteLevel" && type != "TemplateProcessing") {
        part.unsupported(text("the post-processor ", type), kFamilies);
    }
}

/// Room for `id`.
std::string& entry_of(TokenizerSpec& spec, std::uint32_t id) {
    if (id >= spec.bytes.size()) spec.bytes.resize(std::size_t{id} + 1);
    return spec.bytes[id];
}

void read_vocabulary(const Part& part, TokenizerSpec& spec) {
    part.require_that(part.object().size() <= kMaxVocabulary, "more than ", kMaxVocabulary, " tokens");
    spec.vocabulary.reserve(part.value.size());
    for (const auto& [token, value] : part.value.items()) {
        const Part entry{value, text(part.where, ".", token)};
        const std::uint32_t id = entry.id();
        entry.require_that(!token.empty(), "the empty text is not a token");
        std::string& bytes = entry_of(spec, id);
        entry.require_that(bytes.empty(), "id ", id, " is given to two tokens");
        const auto spelled = bytes_of_token(token);
        bytes = spelled.value_or(token);
        if (spelled) spec.vocabulary.emplace(*spelled, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
        part.require_that(spec.vocabulary.contains(std::string(1, static_cast<char>(byte))), "the byte ", byte,
                          " has no token; this is not a byte-level vocabulary");
    }
}

std::uint32_t token_id(const Part& part, const TokenizerSpec& spec, std::string_view token) {
    const auto bytes = bytes_of_token(token);
    const auto found = bytes ? spec.vocabulary.find(*bytes) : spec.vocabulary.end();
    part.require_that(found != spec.vocabulary.end(), "\"", token, "\" is not in the vocabulary");
    return found->second;
}

Merge read_merge(const Part& part, const TokenizerSpec& spec) {
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
void check_no_affix(const Part& part) {
    if (!part.value.is_null() && !part.string().empty()) part.unsupported("a marker of word pieces", kFamilies);
}

void read_model(const Part& part, TokenizerSpec& spec) {
    part.object();
    // Early files have no type; one with merges is BPE.
    const std::string type = part["type"].value.is_null() && part.value.contains("merges") ? "BPE" : part.type();
    if (type != "BPE") part.unsupported(text("the model ", type), kFamilies);
    const Part dropout = part["dropout"];
    const bool no_dropout = dropout.value.is_null() || (dropout.value.is_number() && dropout.value.get<double>() == 0);
    if (!no_dropout) dropout.unsupported("dropout", "it makes tokens random: set it to null");
    if (part["byte_fallback"].flag(false)) part.unsupported("byte_fallback", kFamilies);
    check_no_affix(part["continuing_subword_prefix"]);
    check_no_affix(part["end_of_word_suffix"]);
    spec.ignore_merges = part["ignore_merges"].flag(false);
    read_vocabulary(part["vocab"], spec);
    const Part merges = part["merges"];
    spec.merges.reserve(merges.array().size());
    for (std::size_t i = 0; i < merges.value.size(); ++i) {
        spec.merges.push_back(read_merge(merges.element(i), spec));
    }
}

AddedToken read_added_token(const Part& part, TokenizerSpec& spec) {
    AddedToken token{.id = part["id"].id(), .content = part["content"].string()};
    part.require_that(!token.content.empty(), "the empty text is not a token");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (part[key].flag(false)) part.unsupported(text("the added token ", token.content, " with ", key), kFamilies);
    }
    token.special = part["special"].flag(false);
    token.normalized = part["normalized"].flag(!token.special);
    std::string& bytes = entry_of(spec, token.id);
    // A token may be in the vocabulary as well, then with the same id.
    const std::string spelled = bytes_of_token(token.content).value_or(token.content);
    part.require_that(bytes.empty() || bytes == spelled || bytes == token.content, "id ", token.id, " of ",
                      token.content, " is the id of another token");
    const auto found = spec.vocabulary.find(spelled);
    part.require_that(found == spec.vocabulary.end() || found->second == token.id, token.content, " has id ", token.id,
                      " here and another in the vocabulary");
    bytes = token.content;
    return token;
}

void read_added_tokens(const Part& part, TokenizerSpec& spec) {
    if (part.value.is_null()) return;
    for (std::size_t i = 0; i < part.array().size(); ++i) {
        const Part element = part.element(i);
        AddedToken token = read_added_token(element, spec);
        const bool twice = std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& other) {
            return other.id == token.id || other.content == token.content;
        });
        element.require_that(!twice, token.content, " is given twice");
        spec.added.push_back(std::move(token));
    }
}

}  // namespace

TokenizerSpec parse_tokenizer(const std::string& content, const std::string& file) {
    const json document = parse_json_text(content, file);
    const Part root{document, file + ":"};
    require(document.is_object() && document.contains("model"), file,
            ": not a tokenizer.json, which is an object with the key \"model\"");
    for (const char* key : {"truncation", "padding"}) {
        if (!root[key].value.is_null()) root[key].unsupported(key, "it would change the tokens: set it to null");
    }
    TokenizerSpec spec{.file = file};
    read_normalizer(root["normalizer"], spec);
    read_pre_tokenizer(root["pre_tokenizer"], spec);
    check_post_processor(root["post_processor"]);
    const Part decoder = root["decoder"];
    if (!decoder.value.is_null() && decoder.type() != "ByteLevel") {
        decoder.unsupported(text("the decoder ", decoder.type()), kFamilies);
    }
    read_model(root["model"], spec);
    read_added_tokens(root["added_tokens"], spec);
    return spec;
}

TokenizerSpec read_tokenizer(const std::string& path) { return parse_tokenizer(read_file(path), path); }

}  // namespace coda
