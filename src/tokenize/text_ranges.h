// Which bytes of a text are what, followed through changes of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/core/text_range.h"

namespace coda {

/// What a token has a byte of: bits.
inline constexpr std::uint8_t kTouchesPlain = 1, kTouchesCounted = 2;

/// Both lists are in order, and no range of a list overlaps another.
struct TextRanges {
    std::vector<TextRange> plain{};    // no special token has a byte of these: what they spell stays text
    std::vector<TextRange> counted{};  // the tokens with a byte of these are asked for

    /// The bits of bytes [begin, end).
    std::uint8_t touched(std::size_t begin, std::size_t end) const;

    /// Whether all of these bytes have the same bits.
    bool alike(std::size_t begin, std::size_t end) const;

    /// Those of bytes [begin, end), counted from `begin`.
    TextRanges within(std::size_t begin, std::size_t end) const;

    // What they are after a change of the text. A byte that is put into a text is what its neighbours are.
    void after_prepend(std::size_t bytes);
    void after_replace(std::string_view text, std::string_view pattern, std::size_t bytes);
    /// `moved(byte, is_end)` is where a range that begins or ends at this byte does so now; it never decreases.
    template <class Moved>
    void after(Moved&& moved) {
        for (std::vector<TextRange>* list : {&plain, &counted}) {
            for (TextRange& range : *list) range = {moved(range.begin, false), moved(range.end, true)};
        }
    }
};

}  // namespace coda
