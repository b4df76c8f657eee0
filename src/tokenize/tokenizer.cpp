#include "src/tokenize/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "kernels/core/error.h"

namespace coda {
namespace {

/// The text in Unicode's normalization form C.
std::string nfc(std::string_view text) {
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(result, &std::free);
    require(length >= 0, "text cannot be normalized (NFC): ", utf8proc_errmsg(length));
    return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(length)};
}

/// Whether `text` is its own NFC, at a glance: no code point below U+0300, whose first byte is 0xCC, ever changes.
bool surely_nfc(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) < 0xCC; });
}

std::vector<AddedToken> added_tokens(const TokenizerSpec& spec, bool normalized, SpecialTokens special) {
    std::vector<AddedToken> tokens;
    for (AddedToken token : spec.added) {
        if (token.normalized != normalized || (token.special && special == SpecialTokens::plain)) continue;
        if (normalized && spec.nfc) token.content = nfc(token.content);
        tokens.push_back(std::move(token));
    }
    return tokens;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec)
    : spec_(std::move(spec)),
      regex_(spec_.regex, spec_.file + ": pre_tokenizer"),
      merges_(spec_.merges),
      added_(added_tokens(spec_, false, SpecialTokens::found)),
      normalized_added_(added_tokens(spec_, true, SpecialTokens::found)),
      plain_(added_tokens(spec_, false, SpecialTokens::plain)),
      normalized_plain_(added_tokens(spec_, true, SpecialTokens::plain)),
      can_be_cut_(spec_.regex == kGpt2Regex || spec_.regex == kLlama3Regex || spec_.regex == kQwen2Regex) {
    for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
        byte_ids_[byte] = spec_.vocabulary.at(std::string(1, static_cast<char>(byte)));
    }
}

std::optional<std::uint32_t> Tokenizer::id_of(const std::string& token) const {
    const auto added = std::find_if(spec_.added.begin(), spec_.added.end(),
                                    [&](const AddedToken& candidate) { return candidate.content == token; });
    if (added != spec_.added.end()) return added->id;
    const auto found = spec_.vocabulary.find(token);
    if (found != spec_.vocabulary.end()) return found->second;
    return std::nullopt;
}

bool Tokenizer::is_special(std::uint32_t id) const {
    return std::any_of(spec_.added.begin(), spec_.added.end(),
                       [id](const AddedToken& token) { return token.id == id && token.special; });
}

std::string_view Tokenizer::bytes_of(std::uint32_t id) const {
    require(has(id), spec_.file, ": no token has id ", id);
    return spec_.bytes[id];
}

bool Tokenizer::added_token_touches(std::string_view text, std::size_t begin, std::size_t end) const {
    return added_.touches(text, begin, end) || normalized_added_.touches(text, begin, end);
}

Encoder::Encoder(const Tokenizer& tokenizer, SpecialTokens special)
    : tokenizer_(tokenizer),
      added_(special == SpecialTokens::found ? tokenizer.added_ : tokenizer.plain_),
      normalized_added_(special == SpecialTokens::found ? tokenizer.normalized_added_ : tokenizer.normalized_plain_),
      regex_(tokenizer.regex_),
      pairs_(tokenizer.merges_, tokenizer.byte_ids_) {}

namespace {

/// Calls gap(begin, end) for the stretches of text[0, end) between added tokens and appends the tokens' ids.
template <class Gap>
void between(const AddedTokenFinder& finder, std::string_view text, std::size_t end, std::vector<std::uint32_t>& out,
             Gap&& gap) {
    std::size_t at = 0;
    while (const auto found = finder.find(text.substr(0, end), at)) {
        if (found->begin > at) gap(at, found->begin);
        out.push_back(found->id);
        at = found->end;
    }
    if (at < end) gap(at, end);
}

/// text[begin, end), with what follows it for the regular expression to see where that is the lookahead of a cut.
std::string_view stretch(std::string_view text, std::size_t begin, std::size_t end, std::size_t cut) {
    return end == cut ? text.substr(begin) : text.substr(begin, end - begin);
}

}  // namespace

void Encoder::encode(std::string_view text, std::size_t lookahead, std::vector<std::uint32_t>& out) {
    const std::size_t cut = text.size() - lookahead;
    between(added_, text, cut, out,
            [&](std::size_t begin, std::size_t end) { normalize(stretch(text, begin, end, cut), end - begin, out); });
}

void Encoder::normalize(std::string_view text, std::size_t end, std::vector<std::uint32_t>& out) {
    std::string normalized;
    if (tokenizer_.spec_.nfc && !surely_nfc(text.substr(0, end))) {
        normalized = nfc(text.substr(0, end));
        const std::size_t new_end = normalized.size();
        normalized.append(text.substr(end));
        text = normalized;
        end = new_end;
    }
    between(normalized_added_, text, end, out,
            [&](std::size_t begin, std::size_t stop) { split(stretch(text, begin, stop, end), stop - begin, out); });
}

void Encoder::split(std::string_view text, std::size_t end, std::vector<std::uint32_t>& out) {
    std::size_t at = 0;
    while (at < end) {
        const auto match = regex_.find(text, at);
        const std::size_t begin = match ? std::min(match->begin, end) : end;
        if (begin > at) encode_word(text.substr(at, begin - at), out);
        if (begin == end) return;
        require(match->end <= end, tokenizer_.file(), ": a token lies across a place where the text was cut");
        encode_word(text.substr(begin, match->end - begin), out);
        at = match->end;
    }
}

void Encoder::encode_word(std::string_view word, std::vector<std::uint32_t>& out) {
    const bool cached = word.size() <= TokenCache::kLongestKey;
    const std::uint64_t hash = cached ? hash_bytes(word) : 0;
    if (cached) {
        std::uint32_t count = 0;
        if (const std::uint32_t* ids = cache_.find(word, hash, count)) {
            out.insert(out.end(), ids, ids + count);
            return;
        }
    }
    const std::size_t before = out.size();
    const auto& vocabulary = tokenizer_.spec_.vocabulary;
    const auto whole = tokenizer_.spec_.ignore_merges ? vocabulary.find(std::string(word)) : vocabulary.end();
    if (whole != vocabulary.end()) {
        out.push_back(whole->second);
    } else {
        pairs_.encode(word, out);
    }
    if (cached) cache_.insert(word, hash, std::span(out).subspan(before));
}

}  // namespace coda
