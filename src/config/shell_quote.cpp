#include "src/config/shell_quote.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace coda {

namespace {

constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+";

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_utf8(const std::string& word) {
    try {
        static_cast<void>(nlohmann::json(word).dump());
        return true;
    } catch (const nlohmann::json::type_error&) {
        return false;
    }
}

std::string escaped(const std::string& word) {
    constexpr const char* kHex = "0123456789abcdef";
    std::string result = "$'";
    for (const char c : word) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_control(c) || byte >= 0x80) {
            result += {'\\', 'x', kHex[byte / 16], kHex[byte % 16]};
        } else {
            if (c == '\'' || c == '\\') result += '\\';
            result += c;
        }
    }
    return result + "'";
}

}  // namespace

std::string quote(const std::string& word) {
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
    if (std::any_of(word.begin(), word.end(), is_control) || !is_utf8(word)) return escaped(word);
    std::string result = "'";
    for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

std::string quote_command(int argc, const char* const* argv) {
    std::string command;
    for (int i = 0; i < argc; ++i) {
        if (i > 0) command += ' ';
        command += quote(argv[i]);
    }
    return command;
}

}  // namespace coda
