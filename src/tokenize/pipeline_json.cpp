#include "src/tokenize/pipeline_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "src/core/utf8.h"
#include "src/tokenize/byte_alphabet.h"
#include "src/tokenize/normalizer.h"

namespace coda {
namespace {

constexpr const char* kOwnLibrary = "tokenize with the tokenizer's own library";

/// The pattern of a Replace or Split that is a String.
std::optional<std::string> literal_of(const JsonPart& part) {
    const JsonPart pattern = part["pattern"];
    pattern.object();
    if (pattern["String"].is_null()) return std::nullopt;
    return pattern["String"].filled_string();
}

/// The expression that matches `literal`.
std::string expression_of(std::string_view literal) {
    constexpr std::string_view kSyntax = R"(\.[](){}?*+|^$-)";
    std::string out;
    for (const char c : literal) {
        if (kSyntax.find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

SplitBehavior behavior_of(const JsonPart& part) {
    constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors{
        {{"Isolated", SplitBehavior::isolated},
         {"Removed", SplitBehavior::removed},
         {"MergedWithPrevious", SplitBehavior::merged_with_previous},
         {"MergedWithNext", SplitBehavior::merged_with_next},
         {"Contiguous", SplitBehavior::contiguous}}};
    const std::string name = part.string();
    const auto* found =
        std::find_if(kBehaviors.begin(), kBehaviors.end(), [&](const auto& one) { return one.first == name; });
    part.require_that(found != kBehaviors.end(), "there is no behavior ", name);
    return found->second;
}

void read_split(const JsonPart& part, TokenizerSpec& spec) {
    const std::optional<std::string> literal = literal_of(part);
    spec.pre_tokenizer.push_back({.where = part.where,
                                  .regex = literal ? expression_of(*literal) : part["pattern"]["Regex"].string(),
                                  .behavior = behavior_of(part["behavior"]),
                                  .invert = part["invert"].flag(false)});
}

/// The character of a Metaspace.
std::string replacement_of(const JsonPart& part) {
    const std::string replacement = part["replacement"].filled_string();
    part.require_that(decode_utf8(replacement).length == replacement.size(), "the replacement is one character");
    return replacement;
}

PrependScheme prepend_of(const JsonPart& part) {
    const JsonPart scheme = part["prepend_scheme"];
    if (scheme.is_null()) {  // files of 2023
        return part["add_prefix_space"].flag(true) ? PrependScheme::always : PrependScheme::never;
    }
    const std::string name = scheme.string();
    if (name == "first") return PrependScheme::first;
    if (name == "always") return PrependScheme::always;
    scheme.require_that(name == "never", "first, always or never is expected");
    return PrependScheme::never;
}

void read_metaspace(const JsonPart& part, TokenizerSpec& spec) {
    const std::string replacement = replacement_of(part);
    spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::metaspace,
                                  .where = part.where,
                                  .replacement = replacement,
                                  .prepend = prepend_of(part)});
    if (!part["split"].flag(true)) return;
    spec.pre_tokenizer.push_back(
        {.where = part.where, .regex = expression_of(replacement), .behavior = SplitBehavior::merged_with_next});
}

void read_byte_level(const JsonPart& part, TokenizerSpec& spec) {
    if (part["add_prefix_space"].flag(true)) {
        part.unsupported("ByteLevel with add_prefix_space",
                         "it puts a space before every piece; if its tokens were made without, set it to false");
    }
    if (part["use_regex"].flag(true)) {
        spec.pre_tokenizer.push_back({.where = part.where, .regex = std::string(kGpt2Regex)});
    }
    spec.byte_level = true;
}

/// The byte of "<0xHH>".
std::optional<char> fallback_byte(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
    const char* begin = token.data() + (token[3] == '+' ? 4 : 3);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(begin, token.data() + 5, value, 16);
    if (error != std::errc() || end != token.data() + 5) return std::nullopt;
    return static_cast<char>(value);
}

/// `text` without `mark` at its beginning, up to `count` times.
std::string_view without_start(std::string_view text, std::string_view mark, std::int64_t count) {
    for (; count > 0 && text.starts_with(mark); --count) text.remove_prefix(mark.size());
    return text;
}

std::string_view without_end(std::string_view text, std::string_view mark, std::int64_t count) {
    for (; count > 0 && text.ends_with(mark); --count) text.remove_suffix(mark.size());
    return text;
}

}  // namespace

void read_normalizer(const JsonPart& part, TokenizerSpec& spec) {
    each_step(part, "normalizers", [&](const JsonPart& step) {
        using Kind = NormalizerStep::Kind;
        const std::string type = step.type();
        if (type == "NFC") {
            spec.normalizer.push_back({.kind = Kind::nfc});
        } else if (type == "Prepend") {
            spec.normalizer.push_back({.kind = Kind::prepend, .content = step["prepend"].string()});
        } else if (type == "Replace") {
            const auto literal = literal_of(step);
            if (!literal) step.unsupported("a Replace by a Regex", kOwnLibrary);
            spec.normalizer.push_back(
                {.kind = Kind::replace, .pattern = *literal, .content = step["content"].string()});
        } else {
            step.unsupported(text("the normalizer ", type),
                             text("this program has NFC, Prepend and Replace; ", kOwnLibrary));
        }
    });
}

void read_pre_tokenizer(const JsonPart& part, TokenizerSpec& spec) {
    each_step(part, "pretokenizers", [&](const JsonPart& step) {
        const std::string type = step.type();
        if (spec.byte_level) {
            step.unsupported(text(type, " after ByteLevel"), "it would see characters that stand for bytes");
        }
        if (type == "Split") {
            read_split(step, spec);
        } else if (type == "Digits") {
            const bool individual = step["individual_digits"].flag(false);
            spec.pre_tokenizer.push_back({.where = step.where, .regex = individual ? R"(\p{N})" : R"(\p{N}+)"});
        } else if (type == "Metaspace") {
            read_metaspace(step, spec);
        } else if (type == "ByteLevel") {
            read_byte_level(step, spec);
        } else {
            step.unsupported(text("the pre-tokenizer ", type),
                             text("this program has Split, Digits, Metaspace and ByteLevel; ", kOwnLibrary));
        }
    });
}

TokenDecoder::TokenDecoder(const JsonPart& part, bool byte_level) {
    if (part.is_null()) {
        if (!byte_level) part.unsupported("no decoder", "the library would put a space between any two tokens");
        steps_.push_back({});
        return;
    }
    bool fused = false;
    each_step(part, "decoders", [&](const JsonPart& step) { read_step(step, fused); });
}

void TokenDecoder::read_step(const JsonPart& part, bool& fused) {
    using Kind = Step::Kind;
    const std::string type = part.type();
    const auto alone = [&] {
        if (!steps_.empty() || fused || count_ > 0) {
            part.unsupported(text("the decoder ", type, " after another"), kOwnLibrary);
        }
    };
    if (count_ > 0 || !dropped_.empty()) part.unsupported(text("the decoder ", type, " at this place"), kOwnLibrary);
    if (type == "ByteLevel") {
        alone();
        steps_.push_back({});
    } else if (type == "Metaspace") {
        alone();
        const std::string replacement = replacement_of(part);
        steps_.push_back({.kind = Kind::replace, .pattern = replacement, .content = " "});
        if (prepend_of(part) != PrependScheme::never) dropped_ = replacement;
    } else if (type == "Replace") {
        const auto literal = literal_of(part);
        if (!literal) part.unsupported("a Replace by a Regex", kOwnLibrary);
        if (fused && decode_utf8(*literal).length != literal->size()) {
            part.unsupported("a Replace of several characters after Fuse", "it may reach across tokens");
        }
        steps_.push_back({.kind = Kind::replace, .pattern = *literal, .content = part["content"].string()});
    } else if (type == "ByteFallback") {
        if (fused) part.unsupported("ByteFallback after Fuse", "it would find no tokens");
        steps_.push_back({.kind = Kind::byte_fallback});
    } else if (type == "Fuse") {
        fused = true;
    } else if (type == "Strip") {
        const std::string mark = part["content"].filled_string();
        const std::int64_t begin = part["start"].count(), end = part["stop"].count();
        if (!fused) {
            steps_.push_back({.kind = Kind::strip, .pattern = mark, .begin = begin, .end = end});
        } else {
            if (end > 0) part.unsupported("a Strip of the end", "the text is decoded as a stream");
            strip_ = mark;
            count_ = begin;
        }
    } else {
        part.unsupported(
            text("the decoder ", type),
            text("this program has ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip; ", kOwnLibrary));
    }
}

std::string TokenDecoder::bytes_of(const std::string& token, bool added) const {
    std::string bytes = token;
    for (const Step& step : steps_) {
        switch (step.kind) {
            case Step::Kind::byte_level:
                if (!added) bytes = bytes_of_token(bytes).value_or(bytes);
                break;
            case Step::Kind::byte_fallback:
                if (const auto byte = fallback_byte(bytes)) bytes = std::string(1, *byte);
                break;
            case Step::Kind::replace: bytes = replace_all(bytes, step.pattern, step.content); break;
            case Step::Kind::strip:
                bytes =
                    std::string(without_end(without_start(bytes, step.pattern, step.begin), step.pattern, step.end));
        }
    }
    return bytes;
}

void TokenDecoder::add_start(const std::string& token, std::uint32_t id, DecodedStart& start) const {
    start.strip = strip_;
    start.count = count_;
    if (!dropped_.empty() && token.find(dropped_) != std::string::npos) {
        start.first[id] = replace_all(token, dropped_, "");
    }
}

}  // namespace coda
