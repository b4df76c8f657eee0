#include "src/tokenize/chat/letter_case.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include "src/tokenize/chat/letter_case_tables.h"

namespace coda::jinja {
namespace {

std::optional<char32_t> moved(std::span<const CaseRange> ranges, char32_t value) {
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), value,
                                        [](char32_t c, const CaseRange& range) { return c < range.first; });
    // Ranges with a stride of 2 may lie within each other: upper and lower letters take turns.
    for (auto range = after; range != ranges.begin() && after - range < 3;) {
        --range;
        const bool on_stride = (value - range->first) % static_cast<char32_t>(range->stride) == 0;
        if (value <= range->last && on_stride) {
            return static_cast<char32_t>(static_cast<std::int32_t>(value) + range->delta);
        }
    }
    return std::nullopt;
}

const char32_t* text_of(std::span<const CaseText> texts, char32_t value) {
    const auto found = std::lower_bound(texts.begin(), texts.end(), value,
                                        [](const CaseText& entry, char32_t c) { return entry.character < c; });
    return found != texts.end() && found->character == value ? found->text : nullptr;
}

/// A final sigma follows a letter and precedes none.
bool ends_word(std::string_view text, std::size_t at, std::size_t length) {
    std::size_t before = at;
    while (before > 0 && (text[--before] & 0xC0) == 0x80) {
    }
    const bool follows = at > 0 && is_letter(decode_utf8(text.substr(before)).value);
    return follows && !(at + length < text.size() && is_letter(decode_utf8(text.substr(at + length)).value));
}

}  // namespace

bool is_letter(char32_t value) {
    return moved(kUpperRanges, value) || moved(kLowerRanges, value) || text_of(kUpperTexts, value) != nullptr ||
           text_of(kLowerTexts, value) != nullptr;
}

std::string letter_in_case(std::string_view text, std::size_t at, CodePoint character, LetterCase form) {
    const std::size_t length = std::max<std::size_t>(character.length, 1);
    const char32_t value = character.value;
    if (character.length == 0) return std::string(text.substr(at, length));
    const char32_t* several = form == LetterCase::title ? text_of(kTitleTexts, value) : nullptr;
    if (several == nullptr) {
        several = text_of(form == LetterCase::lower ? std::span<const CaseText>(kLowerTexts) : kUpperTexts, value);
    }
    std::string result;
    if (form == LetterCase::lower && value == U'\u03A3' && ends_word(text, at, length)) {
        append_utf8(result, U'\u03C2');
    } else if (several != nullptr) {
        for (; *several != 0; ++several) append_utf8(result, *several);
    } else {
        const bool lower = form == LetterCase::lower;
        append_utf8(result,
                    moved(lower ? std::span<const CaseRange>(kLowerRanges) : kUpperRanges, value).value_or(value));
    }
    return result;
}

}  // namespace coda::jinja
