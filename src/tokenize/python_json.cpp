#include "src/tokenize/python_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/core/error.h"
#include "src/config/json_file.h"

namespace coda {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 500;       // Python stops near 1000
constexpr std::size_t kPlain = 300;  // characters of a number that surely fits

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The length of the JSON number at the start of `text`; 0 for none.
std::size_t number_length(std::string_view text) {
    std::size_t at = text.starts_with('-') ? 1 : 0;
    const auto digits = [&] {
        const std::size_t begin = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return at > begin;
    };
    const bool zero = at < text.size() && text[at] == '0';
    if (zero ? ++at == 0 : !digits()) return 0;
    if (at < text.size() && text[at] == '.') {
        const std::size_t whole = at++;
        if (!digits()) return whole;
    }
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
        const std::size_t mantissa = at++;
        if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
        if (!digits()) return mantissa;
    }
    return at;
}

/// The code unit of "\uXXXX" at the start of `text`; -1 for anything else.
int escaped_unit(std::string_view text) {
    if (text.size() < 6 || !text.starts_with("\\u")) return -1;
    int unit = 0;
    for (const char c : text.substr(2, 4)) {
        const std::size_t digit =
            std::string_view("0123456789abcdef").find(static_cast<char>(is_digit(c) ? c : c | 0x20));
        if (digit == std::string_view::npos) return -1;
        unit = unit * 16 + static_cast<int>(digit);
    }
    return unit;
}

bool is_high(int unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(int unit) { return unit >= 0xDC00 && unit < 0xE000; }

/// Copies the string at the start of `text`, its quotes included, and returns its length.
std::size_t copy_string(std::string_view text, std::string_view lone, std::string& out) {
    out += '"';
    std::size_t at = 1;
    while (at < text.size() && text[at] != '"') {
        if (text[at] != '\\') {
            out += text[at++];
            continue;
        }
        const int unit = escaped_unit(text.substr(at));
        const bool pair = is_high(unit) && is_low(escaped_unit(text.substr(at + 6)));
        if (!pair && (is_high(unit) || is_low(unit))) {
            out += lone;
            at += 6;
            continue;
        }
        const std::size_t length = pair ? 12 : 2;
        out += text.substr(at, length);
        at += std::min(length, text.size() - at);
    }
    if (at < text.size()) out += text[at++];
    return at;
}

}  // namespace

std::string strict_json(std::string_view line, std::string_view lone) {
    std::string out;
    out.reserve(line.size());
    while (!line.empty()) {
        std::size_t length = 1;
        const auto word = [&](std::string_view name) { return line.starts_with(name) ? name.size() : 0; };
        if (line.front() == '"') {
            length = copy_string(line, lone, out);
        } else if (const std::size_t constant = std::max({word("NaN"), word("Infinity"), word("-Infinity")})) {
            out += "null";
            length = constant;
        } else if (const std::size_t digits = number_length(line)) {
            const std::string_view number = line.substr(0, digits);
            const bool large = digits > kPlain || number.find_first_of("eE") != std::string_view::npos;
            out += large ? "0" : number;
            length = digits;
        } else {
            out += line.front();
        }
        line.remove_prefix(length);
    }
    return out;
}

json parse_python_json(const std::string& line, const std::string& place, std::string_view lone, bool* mended) {
    const auto too_deep = [](int depth, json::parse_event_t, json&) {
        require(depth <= kMaxDepth, "nested too deeply");
        return true;
    };
    try {
        return parse_json_text(line, place);
    } catch (const Error&) {
        // Python may read it yet.
        json value;
        try {
            value = json::parse(strict_json(line, lone), too_deep, false);
        } catch (const Error&) {
            value = json(json::value_t::discarded);
        }
        if (value.is_discarded()) throw;
        if (mended != nullptr) *mended = true;
        return value;
    }
}

}  // namespace coda
