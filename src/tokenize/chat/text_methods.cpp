#include "src/tokenize/chat/text_methods.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/core/error.h"
#include "src/core/utf8.h"
#include "src/tokenize/chat/letter_case.h"

namespace coda::jinja {
namespace {

bool continues(char byte) { return (byte & 0xC0) == 0x80; }

template <class Taken>
std::size_t leading(std::string_view text, Taken&& taken) {
    std::size_t at = 0;
    while (at < text.size()) {
        const CodePoint next = decode_utf8(text.substr(at));
        if (next.length == 0 || !taken(next.value)) break;
        at += next.length;
    }
    return at;
}

template <class Taken>
std::size_t trailing(std::string_view text, Taken&& taken) {
    std::size_t end = text.size();
    while (end > 0) {
        const CodePoint last = last_code_point(text, end);
        if (last.length == 0 || !taken(last.value)) break;
        end -= last.length;
    }
    return text.size() - end;
}

std::vector<OriginText> split_at_space(const OriginText& text, std::int64_t most, bool from_right, Budget& budget) {
    std::vector<OriginText> parts;
    const std::string_view bytes = text.bytes();
    const auto is_word = [](char32_t c) { return !is_python_space(c); };
    std::size_t begin = leading_space(bytes), end = bytes.size() - trailing_space(bytes);
    while (begin < end) {
        budget.spend(4);
        const bool last = most >= 0 && static_cast<std::int64_t>(parts.size()) == most;
        const std::string_view rest = bytes.substr(begin, end - begin);
        if (from_right) {
            const std::size_t word = last ? rest.size() : trailing(rest, is_word);
            parts.push_back(text.part(end - word, end));
            end -= word;
            end -= trailing_space(bytes.substr(begin, end - begin));
        } else {
            const std::size_t word = last ? bytes.size() - begin : leading(rest, is_word);
            parts.push_back(text.part(begin, begin + word));
            begin += word;
            begin += leading_space(bytes.substr(begin));
        }
    }
    if (from_right) {
        // The first part keeps its leading white space if the cuts were used up.
        if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most + 1) {
            const OriginText& first = parts.back();
            const std::size_t lead = leading_space(bytes);
            parts.back() = text.part(0, lead + first.size());
        }
        std::reverse(parts.begin(), parts.end());
    }
    return parts;
}

}  // namespace

bool is_python_space(char32_t value) { return is_space(value) || (value >= 0x1C && value <= 0x1F); }

std::size_t leading_space(std::string_view text) { return leading(text, is_python_space); }
std::size_t trailing_space(std::string_view text) { return trailing(text, is_python_space); }

std::int64_t length_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); });
}

std::size_t byte_of(std::string_view text, std::int64_t index) {
    std::size_t at = 0;
    for (; at < text.size(); ++at) {
        if (!continues(text[at]) && index-- == 0) break;
    }
    return at;
}

std::size_t find_part(std::string_view text, std::string_view part, std::size_t from) {
    if (from > text.size()) return std::string_view::npos;
    // glibc's memmem() is linear; std::string_view::find() takes the product of both lengths at worst.
    const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
    return found == nullptr ? std::string_view::npos
                            : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

OriginText stripped(const OriginText& text, Sides sides, std::optional<std::string_view> characters) {
    std::u32string set;
    for (std::string_view rest = characters.value_or(""); !rest.empty();) {
        const CodePoint next = decode_utf8(rest);
        set += next.value;
        rest.remove_prefix(std::max<std::size_t>(next.length, 1));
    }
    std::sort(set.begin(), set.end());
    const auto taken = [&](char32_t c) {
        return characters ? std::binary_search(set.begin(), set.end(), c) : is_python_space(c);
    };
    const std::string_view bytes = text.bytes();
    const std::size_t begin = sides == Sides::right ? 0 : leading(bytes, taken);
    const std::size_t end = sides == Sides::left ? bytes.size() : bytes.size() - trailing(bytes.substr(begin), taken);
    return text.part(begin, end);
}

std::vector<OriginText> split(const OriginText& text, std::optional<std::string_view> separator, std::int64_t most,
                              bool from_right, Budget& budget) {
    if (!separator) return split_at_space(text, most, from_right, budget);
    require(!separator->empty(), "split: the separator is empty");
    std::vector<OriginText> parts;
    const std::string_view bytes = text.bytes();
    std::size_t begin = 0, end = bytes.size();
    const auto more = [&] {
        budget.spend(4);
        return most < 0 || static_cast<std::int64_t>(parts.size()) < most;
    };
    if (from_right) {
        budget.spend(bytes.size() / 64 * std::min(separator->size(), bytes.size()));  // rfind() may take as long
        while (more()) {
            const std::size_t at = bytes.substr(0, end).rfind(*separator);
            if (at == std::string_view::npos) break;
            parts.push_back(text.part(at + separator->size(), end));
            end = at;
        }
        parts.push_back(text.part(0, end));
        std::reverse(parts.begin(), parts.end());
        return parts;
    }
    while (more()) {
        const std::size_t at = find_part(bytes, *separator, begin);
        if (at == std::string_view::npos) break;
        parts.push_back(text.part(begin, at));
        begin = at + separator->size();
    }
    parts.push_back(text.part(begin, end));
    return parts;
}

OriginText replaced(const OriginText& text, std::string_view old, const OriginText& by, std::int64_t most,
                    Budget& budget) {
    OriginText result;
    const std::string_view bytes = text.bytes();
    std::size_t from = 0;
    // Without `old`, `by` comes before each character and at the end.
    for (std::size_t at = 0; most != 0 && (at = find_part(bytes, old, at)) != std::string_view::npos; --most) {
        result.append(text, from, at);
        result.append(by);
        budget.check_text(result.size());
        budget.spend(1 + by.cost() / 64);
        from = at + old.size();
        if (old.empty()) {
            if (at == bytes.size()) break;
            at += decode_utf8(bytes.substr(at)).length;
        } else {
            at = from;
        }
    }
    result.append(text, from, bytes.size());
    return result;
}

OriginText reversed(const OriginText& text) {
    OriginText result;
    for (std::size_t end = text.size(); end > 0;) {
        const std::size_t length = std::max<std::size_t>(last_code_point(text.bytes(), end).length, 1);
        result.append(text, end - length, end);
        end -= length;
    }
    return result;
}

OriginText with_case(const OriginText& text, Case form) {
    OriginText result;
    const std::string_view bytes = text.bytes();
    bool begins = true;
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint next = decode_utf8(bytes.substr(at));
        const LetterCase letter = form == Case::upper              ? LetterCase::upper
                                  : form == Case::lower || !begins ? LetterCase::lower
                                                                   : LetterCase::title;
        result.append(letter_in_case(bytes, at, next, letter), text.origin_of(at));
        begins = form == Case::title && !is_letter(next.value);
        at += std::max<std::size_t>(next.length, 1);
    }
    return result;
}

}  // namespace coda::jinja
