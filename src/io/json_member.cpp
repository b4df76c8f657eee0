#include "src/io/json_member.h"

#include <cstddef>

namespace coda {

namespace {

constexpr const char* kSpaces = " \t\r\n";

/// Behind the string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
    return at + 1;
}

/// Behind the value that begins at `at`.
std::size_t end_of_value(std::string_view text, std::size_t at) {
    int depth = 0;
    while (at < text.size()) {
        const char c = text[at];
        if (c == '"') {
            at = end_of_string(text, at);
        } else if (c == '{' || c == '[') {
            ++depth;
            ++at;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return at;  // of what the value is in
            --depth;
            ++at;
        } else if (depth > 0 || (c != ',' && std::string_view(kSpaces).find(c) == std::string_view::npos)) {
            ++at;
            continue;
        } else {
            return at;
        }
        if (depth == 0) return at;
    }
    return at;
}

}  // namespace

std::optional<std::string_view> json_member(std::string_view document, std::string_view key) {
    const auto skip = [&](std::size_t at, const char* what) { return document.find_first_not_of(what, at); };
    std::size_t at = skip(0, kSpaces);
    if (at >= document.size() || document[at] != '{') return std::nullopt;
    for (at = skip(at + 1, kSpaces); at < document.size() && document[at] == '"'; at = skip(at, " \t\r\n,")) {
        const std::size_t end = end_of_string(document, at);
        if (end > document.size()) return std::nullopt;
        const std::string_view name = document.substr(at + 1, end - at - 2);
        const std::size_t value = skip(end, " \t\r\n:");
        if (value >= document.size()) return std::nullopt;
        at = end_of_value(document, value);
        if (name == key) return document.substr(value, at - value);
    }
    return std::nullopt;
}

}  // namespace coda
