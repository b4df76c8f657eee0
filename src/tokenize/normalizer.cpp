#include "src/tokenize/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/utf8.h"

namespace coda {
namespace {

constexpr std::size_t kLongRun = 64;  // marks in a row

/// A code point's canonical combining class; 0 of what is no mark.
int combining_class(char32_t value) {
    return value < 0x300 ? 0 : utf8proc_get_property(static_cast<utf8proc_int32_t>(value))->combining_class;
}

/// Whether there may be so many marks in a row. One of them stands at one of these places.
bool may_have_long_run(std::string_view text) {
    for (std::size_t at = kLongRun; at < text.size(); at += kLongRun) {
        std::size_t begin = at;
        while ((static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
        if (combining_class(decode_utf8(text.substr(begin)).value) != 0) return true;
    }
    return false;
}

/// The text with its marks, in long runs, in canonical order. utf8proc puts them into it one place at a time, which
/// takes the square of their number.
std::string with_sorted_marks(std::string_view text) {
    std::string out;
    std::vector<std::pair<int, char32_t>> run;  // with their classes
    std::size_t begin = 0;
    const auto end_run = [&](std::size_t end) {
        if (run.size() <= kLongRun) {
            out += text.substr(begin, end - begin);
        } else {
            std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
            for (const auto& [unused, value] : run) append_utf8(out, value);
        }
        run.clear();
        begin = end;
    };
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint each = decode_utf8(text.substr(at));
        if (each.length == 0) break;
        std::array<utf8proc_int32_t, 8> parts{};
        int boundary = 0;
        const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(each.value), parts.data(),
                                                               parts.size(), UTF8PROC_DECOMPOSE, &boundary);
        const bool is_mark = count > 0 && combining_class(static_cast<char32_t>(parts[0])) != 0;
        if (!is_mark && !run.empty()) end_run(at);
        if (!is_mark) end_run(at + each.length);
        for (utf8proc_ssize_t i = 0; is_mark && i < count; ++i) {
            const auto value = static_cast<char32_t>(parts[static_cast<std::size_t>(i)]);
            run.emplace_back(combining_class(value), value);
        }
        at += each.length;
    }
    end_run(text.size());
    return out;
}

/// The text in Unicode's normalization form C.
std::string nfc(std::string_view given) {
    const bool long_run = may_have_long_run(given);
    const std::string sorted = long_run ? with_sorted_marks(given) : std::string();
    const std::string_view text = long_run ? std::string_view(sorted) : given;
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

/// The other characters that NFC may compose with the one at a place of a text.
TextRange composing(std::string_view text, std::size_t at) {
    const auto joins = [&](std::size_t byte) { return joins_leftward(decode_utf8(text.substr(byte)).value); };
    const auto continues = [&](std::size_t byte) { return (static_cast<unsigned char>(text[byte]) & 0xC0U) == 0x80U; };
    TextRange around{at, at};
    // As many marks as there are in a text that is one: what is beyond may lie on either side of a range's end.
    for (std::size_t i = 0; i < kLongRun && around.begin > 0 && joins(around.begin); ++i) {
        do --around.begin;
        while (around.begin > 0 && continues(around.begin));
    }
    for (std::size_t i = 0; i < kLongRun && around.end < text.size() && joins(around.end); ++i) {
        do ++around.end;
        while (around.end < text.size() && continues(around.end));
    }
    return around;
}

/// The ranges of a text that becomes `normalized` by NFC. What is composed across the end of a range belongs to it.
void move_by_nfc(std::string_view text, std::string_view normalized, TextRanges& ranges) {
    const auto piece = [text](std::size_t begin, std::size_t end) { return nfc(text.substr(begin, end - begin)); };
    for (std::vector<TextRange>* list : {&ranges.plain, &ranges.counted}) {
        std::size_t from = 0, to = 0;  // the same place in both texts
        const auto moved = [&](std::size_t byte, bool is_end) {
            if (byte < text.size() && joins_leftward(decode_utf8(text.substr(byte)).value)) {
                const TextRange around = composing(text, byte);
                const bool apart =
                    piece(around.begin, byte) + piece(byte, around.end) == piece(around.begin, around.end);
                if (!apart) byte = is_end ? around.end : around.begin;
            }
            if (byte > from) to += piece(from, byte).size();
            from = std::max(from, byte);
            return std::min(to, normalized.size());
        };
        for (TextRange& range : *list) {
            const std::size_t begin = moved(range.begin, false);
            range = {begin, moved(range.end, true)};
        }
    }
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    for (std::size_t at = 0;;) {
        const std::size_t found = text.find(pattern, at);
        out += text.substr(at, found - at);
        if (found == std::string_view::npos) return out;
        out += content;
        at = found + pattern.size();
    }
}

bool joins_leftward(char32_t value) {
    if (value < 0x300) return false;
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
    const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC;
    return mark || category == UTF8PROC_CATEGORY_ME || (value >= 0x1160 && value <= 0x11FF);
}

std::string_view Normalizer::apply(std::string_view text, bool begins, std::string& storage, TextRanges* ranges) const {
    for (const NormalizerStep& step : steps_) {
        switch (step.kind) {
            case NormalizerStep::Kind::nfc:
                if (surely_nfc(text)) continue;
                {
                    std::string normalized = nfc(text);
                    if (ranges != nullptr) move_by_nfc(text, normalized, *ranges);
                    storage = std::move(normalized);
                }
                break;
            case NormalizerStep::Kind::prepend:
                if (!begins || text.empty()) continue;
                if (ranges != nullptr) ranges->after_prepend(step.content.size());
                storage = step.content + std::string(text);
                break;
            case NormalizerStep::Kind::replace:
                if (ranges != nullptr) ranges->after_replace(text, step.pattern, step.content.size());
                storage = replace_all(text, step.pattern, step.content);
        }
        text = storage;
    }
    return text;
}

bool Normalizer::has_nfc() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::nfc; });
}

std::string Normalizer::replaced(std::string_view character) const {
    std::string result(character);
    for (const NormalizerStep& step : steps_) {
        if (step.kind != NormalizerStep::Kind::replace) continue;
        if (decode_utf8(step.pattern).length != step.pattern.size()) return {};
        result = replace_all(result, step.pattern, step.content);
    }
    return result;
}

}  // namespace coda
