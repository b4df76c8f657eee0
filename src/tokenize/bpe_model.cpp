#include "src/tokenize/bpe_model.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/utf8.h"
#include "src/tokenize/byte_alphabet.h"

namespace coda {
namespace {

/// The units of a token as the file spells it; none where no text has them.
std::u32string units_of(const std::string& token, bool byte_level) {
    std::u32string units;
    if (byte_level) {
        for (const char byte : bytes_of_token(token).value_or("")) units += static_cast<unsigned char>(byte);
        return units;
    }
    for (std::string_view rest = token; !rest.empty();) {
        const CodePoint character = decode_utf8(rest);
        units += character.value;
        rest.remove_prefix(character.length);
    }
    return units;
}

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec)
    : file_(spec.file),
      merges_(spec.merges),
      byte_level_(spec.byte_level),
      byte_fallback_(spec.byte_fallback),
      has_unk_(spec.unk_token.has_value()),
      fuse_unk_(spec.fuse_unk) {
    if (byte_level_) unit_ids_.assign(256, kNoToken);
    if (spec.ignore_merges) pieces_.reserve(spec.vocabulary.size());
    for (const auto& [token, id] : spec.vocabulary) {
        std::string piece = byte_level_ ? bytes_of_token(token).value_or("") : token;
        if (piece.empty()) continue;
        const CodePoint unit =
            byte_level_ ? CodePoint{static_cast<unsigned char>(piece.front()), 1} : decode_utf8(piece);
        if (unit.length == piece.size()) {
            if (unit.value >= unit_ids_.size()) unit_ids_.resize(unit.value + 1, kNoToken);
            unit_ids_[unit.value] = id;
        }
        if (spec.ignore_merges) pieces_.emplace(std::move(piece), id);
    }
    for (unsigned byte = 0; byte < fallback_ids_.size(); ++byte) {
        std::array<char, 8> name{};
        std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
        const auto found = spec.vocabulary.find(name.data());
        fallback_ids_[byte] = found != spec.vocabulary.end() ? found->second : kNoToken;
    }
    if (has_unk_) {
        const auto found = spec.vocabulary.find(*spec.unk_token);
        if (found != spec.vocabulary.end()) unk_id_ = found->second;
    }
    // Pieces of bytes that a step divides are words already.
    const bool long_pieces = !byte_level_ || std::none_of(spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(),
                                                          [](const PreTokenizerStep& step) {
                                                              return step.kind == PreTokenizerStep::Kind::split;
                                                          });
    if (long_pieces && !spec.ignore_merges) find_word_start(spec);
}

void BpeModel::find_word_start(const TokenizerSpec& spec) {
    std::unordered_map<char32_t, std::size_t> begun;  // tokens by their first unit
    for (const auto& [token, id] : spec.vocabulary) {
        const std::u32string units = units_of(token, byte_level_);
        if (units.size() > 1 && token_of(units[0]) != kNoToken) ++begun[units[0]];
    }
    // The least of equals, so that every run has the same.
    const auto most = std::max_element(begun.begin(), begun.end(), [](const auto& a, const auto& b) {
        return a.second != b.second ? a.second < b.second : a.first > b.first;
    });
    if (most == begun.end()) return;
    const char32_t start = most->first;
    word_start_ = byte_level_ ? std::string(1, static_cast<char>(start)) : utf8_of(start);
    joined_.resize(unit_ids_.size());
    for (std::size_t unit = 0; unit < unit_ids_.size(); ++unit) joined_[unit] = unit_ids_[unit] == kNoToken;
    for (const auto& [token, id] : spec.vocabulary) {
        const std::u32string units = units_of(token, byte_level_);
        for (std::size_t i = 1; i < units.size(); ++i) {
            if (units[i] == start && units[i - 1] < joined_.size()) joined_[units[i - 1]] = true;
        }
    }
}

bool BpeModel::divides_after(std::string_view text) const {
    const char32_t unit =
        byte_level_ ? static_cast<unsigned char>(text.back()) : last_code_point(text, text.size()).value;
    return unit < joined_.size() && !joined_[unit];
}

std::optional<std::uint32_t> BpeModel::whole(std::string_view piece) const {
    if (pieces_.empty()) return std::nullopt;
    const auto found = pieces_.find(std::string(piece));
    return found != pieces_.end() ? std::optional(found->second) : std::nullopt;
}

bool BpeModel::add_fallback(std::string_view character, std::vector<std::uint32_t>& out) const {
    const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
    if (std::any_of(character.begin(), character.end(), [&](char byte) { return id_of(byte) == kNoToken; })) {
        return false;
    }
    for (const char byte : character) out.push_back(id_of(byte));
    return true;
}

void BpeModel::symbols(std::string_view piece, std::vector<std::uint32_t>& out, std::vector<TextRange>* places) const {
    if (places != nullptr) places->clear();
    if (byte_level_) {  // as a rule every byte has a token
        out.resize(piece.size());
        bool all = true;
        for (std::size_t i = 0; i < piece.size(); ++i) {
            out[i] = unit_ids_[static_cast<unsigned char>(piece[i])];
            all = all && out[i] != kNoToken;
        }
        for (std::size_t i = 0; all && places != nullptr && i < piece.size(); ++i) places->push_back({i, i + 1});
        if (all) return;
    }
    out.clear();
    TextRange unknown{};  // waits as one token, which is written before the next unit that has a token
    // The symbols that were added last stand for these bytes.
    const auto placed = [&](const TextRange& place) {
        if (places != nullptr) places->resize(out.size(), place);
    };
    const auto write_unknown = [&] {
        if (unknown.begin == unknown.end) return;
        out.push_back(unk_id_);
        placed(unknown);
        unknown = {};
    };
    for (std::size_t at = 0; at < piece.size();) {
        const CodePoint unit =
            byte_level_ ? CodePoint{static_cast<unsigned char>(piece[at]), 1} : decode_utf8(piece.substr(at));
        const std::string_view spelling = piece.substr(at, unit.length);
        const TextRange place{at, at + unit.length};
        at = place.end;
        const std::uint32_t id = token_of(unit.value);
        if (id != kNoToken) {
            write_unknown();
            out.push_back(id);
            placed(place);
            continue;
        }
        if (byte_fallback_) {
            const std::string stand_in = byte_level_ ? utf8_of(byte_alphabet()[unit.value]) : std::string(spelling);
            if (add_fallback(stand_in, out)) {
                placed(place);
                continue;
            }
        }
        if (!has_unk_) continue;
        require(unk_id_ != kNoToken, file_, ": model.unk_token is not in the vocabulary, and the text has \"", spelling,
                "\", which no token stands for");
        if (!fuse_unk_) write_unknown();
        if (unknown.begin == unknown.end) unknown.begin = place.begin;
        unknown.end = place.end;
    }
    write_unknown();
}

}  // namespace coda
