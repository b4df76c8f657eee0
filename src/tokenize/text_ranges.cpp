#include "src/tokenize/text_ranges.h"

namespace coda {
namespace {

std::vector<TextRange> list_within(const std::vector<TextRange>& ranges, std::size_t begin, std::size_t end) {
    std::vector<TextRange> within;
    auto range = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                  [](std::size_t byte, const TextRange& each) { return byte < each.end; });
    for (; range != ranges.end() && range->begin < end; ++range) {
        within.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
    }
    return within;
}

}  // namespace

std::uint8_t TextRanges::touched(std::size_t begin, std::size_t end) const {
    return static_cast<std::uint8_t>((touches(plain, begin, end) ? kTouchesPlain : 0) |
                                     (touches(counted, begin, end) ? kTouchesCounted : 0));
}

bool TextRanges::alike(std::size_t begin, std::size_t end) const {
    const auto all_or_none = [&](const std::vector<TextRange>& list) {
        return !touches(list, begin, end) || covers(list, begin, end);
    };
    return all_or_none(plain) && all_or_none(counted);
}

TextRanges TextRanges::within(std::size_t begin, std::size_t end) const {
    return {list_within(plain, begin, end), list_within(counted, begin, end)};
}

void TextRanges::after_prepend(std::size_t bytes) {
    after([bytes](std::size_t byte, bool) { return byte == 0 ? 0 : byte + bytes; });
}

void TextRanges::after_replace(std::string_view text, std::string_view pattern, std::size_t bytes) {
    for (std::vector<TextRange>* list : {&plain, &counted}) {
        std::size_t found = text.find(pattern), replaced = 0;
        // Positions of a list come in order, so one walk over the occurrences serves all of them.
        const auto moved = [&](std::size_t byte, bool is_end) {
            while (found != std::string_view::npos && found + pattern.size() <= byte) {
                ++replaced;
                found = text.find(pattern, found + pattern.size());
            }
            const std::size_t before = replaced * bytes - replaced * pattern.size();  // modulo 2^64
            if (found == std::string_view::npos || found >= byte) return byte + before;
            return found + before + (is_end ? bytes : 0);  // within an occurrence
        };
        for (TextRange& range : *list) {
            const std::size_t begin = moved(range.begin, false);
            range = {begin, moved(range.end, true)};
        }
    }
}

}  // namespace coda
