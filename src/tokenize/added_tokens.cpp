#include "src/tokenize/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/core/utf8.h"

namespace coda {
namespace {

/// What Rust's regular expressions take for part of a word: Alphabetic, marks, decimal digits, connectors and joiners.
bool is_word(char32_t value) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: break;
    }
    // Symbols that are Alphabetic, and the joiners.
    constexpr std::array<std::pair<char32_t, char32_t>, 5> kOthers{
        {{0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}}};
    return std::any_of(kOthers.begin(), kOthers.end(),
                       [value](const auto& range) { return value >= range.first && value <= range.second; });
}

bool word_before(std::string_view text, std::size_t at) { return at > 0 && is_word(last_code_point(text, at).value); }

bool word_at(std::string_view text, std::size_t at) {
    return at < text.size() && is_word(decode_utf8(text.substr(at)).value);
}

/// Where the white space that ends before text[at] begins.
std::size_t spaces_before(std::string_view text, std::size_t at) {
    while (at > 0) {
        const CodePoint last = last_code_point(text, at);
        if (last.length == 0 || !is_space(last.value)) break;
        at -= last.length;
    }
    return at;
}

/// Where the white space that begins at text[at] ends.
std::size_t spaces_after(std::string_view text, std::size_t at) {
    for (;;) {
        const CodePoint next = decode_utf8(text.substr(at));
        if (next.length == 0 || !is_space(next.value)) return at;
        at += next.length;
    }
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) {
    group_of_.fill(-1);
    for (AddedToken& token : tokens) {
        longest_ = std::max(longest_, token.content.size());
        std::int16_t& index = group_of_[static_cast<unsigned char>(token.content.front())];
        if (index < 0) {
            index = static_cast<std::int16_t>(groups_.size());
            groups_.push_back({.common = token.content});
        }
        Group& group = groups_[static_cast<std::size_t>(index)];
        const auto differ =
            std::mismatch(group.common.begin(), group.common.end(), token.content.begin(), token.content.end());
        group.common.erase(differ.first, group.common.end());
        group.sizes.push_back(token.content.size());
        std::string content = token.content;
        group.tokens.emplace(std::move(content), std::move(token));  // the first of equal ones
    }
    for (Group& group : groups_) {
        std::sort(group.sizes.rbegin(), group.sizes.rend());
        group.sizes.erase(std::unique(group.sizes.begin(), group.sizes.end()), group.sizes.end());
    }
}

const AddedToken* AddedTokenFinder::at(std::string_view text, std::size_t at, std::size_t limit) const {
    const std::int16_t index = group_of_[static_cast<unsigned char>(text[at])];
    if (index < 0) return nullptr;
    const Group& group = groups_[static_cast<std::size_t>(index)];
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with(group.common)) return nullptr;
    for (const std::size_t size : group.sizes) {
        if (size >= limit || size > rest.size()) continue;
        const auto found = group.tokens.find(rest.substr(0, size));
        if (found != group.tokens.end()) return &found->second;
    }
    return nullptr;
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::find(std::string_view text, std::size_t from,
                                                              std::size_t taken, std::span<const TextRange> plain,
                                                              std::size_t origin) const {
    if (groups_.empty()) return std::nullopt;
    const auto is_plain = [&](const AddedToken& token, std::size_t begin) {
        return token.special && coda::touches(plain, origin + begin, origin + begin + token.content.size());
    };
    // One that is spelled out by a message and by what stands next to it must not hide a shorter one there.
    const auto is_partly_plain = [&](const AddedToken& token, std::size_t begin) {
        return is_plain(token, begin) && !covers(plain, origin + begin, origin + begin + token.content.size());
    };
    for (std::size_t i = from; i < text.size(); ++i) {
        if (groups_.size() == 1) {  // as in most families: "<"
            const void* next = std::memchr(text.data() + i, groups_.front().common.front(), text.size() - i);
            if (next == nullptr) return std::nullopt;
            i = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
        }
        const AddedToken* token = at(text, i);
        while (token != nullptr && is_partly_plain(*token, i)) token = at(text, i, token->content.size());
        if (token == nullptr) continue;
        const std::size_t next = i + token->content.size();
        const bool stays_text = next <= taken || is_plain(*token, i) ||
                                (token->single_word && (word_before(text, i) || word_at(text, next)));
        if (stays_text) {
            i = next - 1;
            continue;
        }
        return Found{token->lstrip ? std::max(taken, spaces_before(text, i)) : i,
                     token->rstrip ? spaces_after(text, next) : next, i, next, token->id};
    }
    return std::nullopt;
}

bool AddedTokenFinder::touches(std::string_view text, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin - std::min(begin, longest_); i <= end && i < text.size(); ++i) {
        const AddedToken* token = at(text, i);
        if (token != nullptr && i + token->content.size() >= begin) return true;
    }
    return false;
}

}  // namespace coda
