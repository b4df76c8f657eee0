#include "src/core/printable.h"

#include <utility>

namespace coda {

namespace {

/// The character that a text begins with. Its bytes are 0 where the text begins with no well-formed UTF-8, or where the
/// text ends within the character, which `cut` then says.
struct Character {
    char32_t code = 0;
    std::size_t bytes = 0;
    bool cut = false;
};

Character first_character(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {.code = lead, .bytes = 1};
    const std::size_t bytes = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    char32_t code = bytes == 0 ? 0 : lead & (0x7fU >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if (i == text.size()) return {.cut = true};
        // The second byte's limits rule out overlong forms, surrogates and what is beyond U+10FFFF.
        const unsigned char low = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        const unsigned char high = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (byte(i) < low || byte(i) > high) return {};
        code = code << 6U | (byte(i) & 0x3fU);
    }
    return {.code = code, .bytes = bytes};
}

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

void append_escaped(std::string& out, std::string_view bytes) {
    constexpr const char* kHex = "0123456789abcdef";
    for (const char each : bytes) {
        const auto byte = static_cast<unsigned char>(each);
        out += {'\\', 'x', kHex[byte / 16], kHex[byte % 16]};
    }
}

/// Takes all of `text` that can be shown; a character that is cut off at its end stays.
std::string take_printable(std::string_view& text, std::string_view kept) {
    std::string out;
    while (!text.empty()) {
        const Character character = first_character(text);
        if (character.cut) break;
        const std::string_view bytes = text.substr(0, character.bytes == 0 ? 1 : character.bytes);
        const bool keep = bytes.size() == 1 && kept.find(bytes[0]) != std::string_view::npos;
        if (character.bytes > 0 && (keep || !is_control(character.code))) {
            out += bytes;
        } else {
            append_escaped(out, bytes);
        }
        text.remove_prefix(bytes.size());
    }
    return out;
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
    std::string out = take_printable(text, kept);
    append_escaped(out, text);
    return out;
}

std::string PrintableParts::add(std::string_view part) {
    const std::string all = std::exchange(begun_, {}) + std::string(part);
    std::string_view left = all;
    std::string out = take_printable(left, kept_);
    begun_ = left;
    return out;
}

std::string PrintableParts::finish() {
    std::string out;
    append_escaped(out, std::exchange(begun_, {}));
    return out;
}

}  // namespace coda
