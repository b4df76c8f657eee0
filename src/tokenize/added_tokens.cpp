#include "src/tokenize/added_tokens.h"

#include <algorithm>
#include <cstring>

namespace coda {

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) {
    group_of_.fill(-1);
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
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
        group.longest_first.push_back(std::move(token));
    }
}

const AddedToken* AddedTokenFinder::at(std::string_view text, std::size_t at) const {
    const std::int16_t index = group_of_[static_cast<unsigned char>(text[at])];
    if (index < 0) return nullptr;
    const Group& group = groups_[static_cast<std::size_t>(index)];
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with(group.common)) return nullptr;
    for (const AddedToken& token : group.longest_first) {
        if (rest.starts_with(token.content)) return &token;
    }
    return nullptr;
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::find(std::string_view text, std::size_t from) const {
    if (groups_.empty()) return std::nullopt;
    for (std::size_t i = from; i < text.size(); ++i) {
        if (groups_.size() == 1) {  // as in all known families: "<"
            const void* next = std::memchr(text.data() + i, groups_.front().common.front(), text.size() - i);
            if (next == nullptr) return std::nullopt;
            i = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
        }
        if (const AddedToken* token = at(text, i)) return Found{i, i + token->content.size(), token->id};
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
