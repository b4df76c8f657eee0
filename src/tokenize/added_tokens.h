// Tokens that are found in the text before the pre-tokenizer sees it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/core/text_range.h"

namespace coda {

struct AddedToken {
    std::uint32_t id = 0;
    std::string content;
    bool special = false;      // left out of decoded text by --skip-special
    bool normalized = false;   // looked for after the normalizer, not before
    bool single_word = false;  // not next to a character of a word
    bool lstrip = false;       // takes the white space before it
    bool rstrip = false;       // takes the white space after it
};

/// Leftmost-longest search for a set of tokens.
class AddedTokenFinder {
  public:
    explicit AddedTokenFinder(std::vector<AddedToken> tokens);

    struct Found {
        std::size_t begin = 0, end = 0;  // with the white space that the token takes
        std::size_t own = 0, next = 0;   // without that white space; the search continues at `next`
        std::uint32_t id = 0;
    };
    /// The first token that begins at or after `from`, the longest where several begin together, but none that stays
    /// text: one within the bytes before `taken`, which belong to an earlier token, and a special one with a byte in
    /// `plain`, whose positions are counted from `origin` bytes before the text.
    std::optional<Found> find(std::string_view text, std::size_t from, std::size_t taken,
                              std::span<const TextRange> plain, std::size_t origin) const;

    /// Whether an occurrence of any token, overlapped by another or not, begins at or before `end` and ends at or after
    /// `begin`.
    bool touches(std::string_view text, std::size_t begin, std::size_t end) const;

    std::size_t longest() const { return longest_; }  // bytes, without white space that is taken

  private:
    /// The longest token at `at` of less than `limit` bytes.
    const AddedToken* at(std::string_view text, std::size_t at, std::size_t limit = std::string_view::npos) const;

    struct TextHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    struct Group {                         // tokens with the same first byte
        std::string common;                // what they all begin with
        std::vector<std::size_t> sizes{};  // of their texts, the largest first
        std::unordered_map<std::string, AddedToken, TextHash, std::equal_to<>> tokens{};
    };
    std::vector<Group> groups_;
    std::array<std::int16_t, 256> group_of_{};  // by first byte, -1 for none
    std::size_t longest_ = 0;
};

}  // namespace coda
