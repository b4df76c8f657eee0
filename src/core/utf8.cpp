#include "src/core/utf8.h"

#include <cstdint>
#include <cstring>

namespace coda {
namespace {

/// What may follow a lead byte: the number of continuation bytes and the range of the first one.
struct Lead {
    std::size_t continuations = 0;
    unsigned low = 0x80, high = 0xBF;
};

/// False where no sequence begins with `byte`.
bool classify(unsigned char byte, Lead& lead) {
    if (byte < 0x80) return lead = {0}, true;
    if (byte < 0xC2 || byte > 0xF4) return false;
    lead = {byte < 0xE0 ? 1U : byte < 0xF0 ? 2U : 3U};
    if (byte == 0xE0) lead.low = 0xA0;   // shorter forms exist
    if (byte == 0xED) lead.high = 0x9F;  // surrogates
    if (byte == 0xF0) lead.low = 0x90;   // shorter forms exist
    if (byte == 0xF4) lead.high = 0x8F;  // above U+10FFFF
    return true;
}

/// Bytes of the sequence at the start of `text` that fit together, at least 1; `complete` when they make a code point.
std::size_t sequence(std::string_view text, bool& complete) {
    Lead lead;
    complete = false;
    if (!classify(static_cast<unsigned char>(text[0]), lead)) return 1;
    for (std::size_t i = 1; i <= lead.continuations; ++i) {
        if (i == text.size()) return i;
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < (i == 1 ? lead.low : 0x80) || byte > (i == 1 ? lead.high : 0xBF)) return i;
    }
    complete = true;
    return lead.continuations + 1;
}

}  // namespace

CodePoint decode_utf8(std::string_view text) {
    if (text.empty()) return {};
    bool complete = false;
    const std::size_t length = sequence(text, complete);
    if (!complete) return {};
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 1) return {first, 1};
    char32_t value = first & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
    return {value, length};
}

CodePoint last_code_point(std::string_view text, std::size_t end) {
    std::size_t begin = end;
    while (begin > 0 && (static_cast<unsigned char>(text[--begin]) & 0xC0U) == 0x80U) {
    }
    return decode_utf8(text.substr(begin, end - begin));
}

std::string utf8_of(char32_t value) {
    std::string out;
    append_utf8(out, value);
    return out;
}

void append_utf8(std::string& out, char32_t value) {
    const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    const auto continuation = [&](int shift) { put(0x80 | (value >> shift & 0x3F)); };
    if (value < 0x80) return put(value);
    if (value < 0x800) return put(0xC0 | value >> 6), continuation(0);
    if (value < 0x10000) return put(0xE0 | value >> 12), continuation(6), continuation(0);
    put(0xF0 | value >> 18), continuation(12), continuation(6), continuation(0);
}

std::size_t valid_utf8(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        std::uint64_t word;
        if (text.size() - at >= sizeof word) {
            std::memcpy(&word, text.data() + at, sizeof word);
            if ((word & 0x8080808080808080U) == 0) {
                at += sizeof word;
                continue;
            }
        }
        bool complete = false;
        const std::size_t length = sequence(text.substr(at), complete);
        if (!complete) return at;
        at += length;
    }
    return at;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t valid = valid_utf8(text);
        out.append(text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) break;
        bool complete = false;
        text.remove_prefix(sequence(text, complete));
        append_utf8(out, 0xFFFD);
    }
    return out;
}

std::size_t unfinished_utf8(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        at += valid_utf8(text.substr(at));
        if (at == text.size()) return 0;
        bool complete = false;
        const std::size_t length = sequence(text.substr(at), complete);
        if (at + length == text.size()) {
            // The lead byte says whether the sequence was cut off by the text's end or could never be one.
            Lead lead;
            return classify(static_cast<unsigned char>(text[at]), lead) ? length : 0;
        }
        at += length;
    }
    return 0;
}

bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace coda
