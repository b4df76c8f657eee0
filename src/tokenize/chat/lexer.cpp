#include "src/tokenize/chat/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/printable.h"
#include "src/core/utf8.h"
#include "src/tokenize/chat/text_methods.h"

namespace coda::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// Letters beyond ASCII are taken as they are.
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0; }

/// One form of line ends, and none at the very end.
std::string normalized(std::string_view source) {
    std::string result;
    for (std::size_t i = 0; i < source.size(); ++i) {
        const bool carriage = source[i] == '\r';
        if (carriage && i + 1 < source.size() && source[i + 1] == '\n') ++i;
        result += carriage ? '\n' : source[i];
    }
    if (result.ends_with('\n')) result.pop_back();
    return result;
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) : source_(normalized(source)) {}

    std::vector<Token> read() {
        while (at_ < source_.size()) outside();
        put(Kind::end, {});
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void fail(const std::string& why) const { throw Error(text("line ", line_, ": ", why)); }
    bool here(std::string_view part) const { return std::string_view(source_).substr(at_).starts_with(part); }
    char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

    void advance(std::size_t bytes) {
        const auto from = source_.begin() + static_cast<std::ptrdiff_t>(at_);
        line_ += static_cast<int>(std::count(from, from + static_cast<std::ptrdiff_t>(bytes), '\n'));
        at_ += bytes;
    }
    void put(Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }

    void skip_space() { advance(leading_space(std::string_view(source_).substr(at_))); }

    std::size_t find_tag() const {
        for (std::size_t at = at_; (at = source_.find('{', at)) != std::string::npos; ++at) {
            const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
            if (next == '{' || next == '%' || next == '#') return at;
        }
        return source_.size();
    }

    /// The text [at_, end) before a tag, with what the tag's sign and lstrip_blocks take away.
    void data(std::size_t end, char sign, bool block) {
        std::string_view text = std::string_view(source_).substr(at_, end - at_);
        if (sign == '-') {
            text.remove_suffix(trailing_space(text));
        } else if (sign != '+' && block) {
            const std::size_t line = text.rfind('\n') + 1;  // 0 without one
            const bool begins_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
            if (begins_line && leading_space(text.substr(line)) == text.size() - line) text = text.substr(0, line);
        }
        if (!text.empty()) put(Kind::data, std::string(text));
        advance(end - at_);
    }

    void outside() {
        const std::size_t tag = find_tag();
        if (tag == source_.size()) return data(tag, '+', false);
        const char kind = source_[tag + 1];
        const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
        const bool is_signed = after == '-' || after == '+';
        data(tag, is_signed ? after : '\0', kind != '{');
        if (kind == '%' && raw(is_signed ? 3 : 2)) return;
        advance(is_signed ? 3 : 2);
        if (kind == '#') return comment();
        put(kind == '{' ? Kind::print_begin : Kind::block_begin, {});
        inside(kind == '{');
    }

    /// What follows the end of a block or comment: trim_blocks, or all white space after '-'.
    void after_end(char sign) {
        if (sign == '-') {
            skip_space();
        } else if (sign != '+' && peek() == '\n') {
            advance(1);
        }
    }

    void comment() {
        const std::size_t end = source_.find("#}", at_);
        if (end == std::string::npos) fail("a comment has no \"#}\"");
        const char sign = end > at_ ? source_[end - 1] : '\0';
        advance(end + 2 - at_);
        after_end(sign);
    }

    /// Takes "{% raw %}...{% endraw %}" if the tag here is one.
    bool raw(std::size_t begin) {
        const auto word = [&](std::size_t at, std::string_view name) -> std::size_t {
            std::string_view rest = std::string_view(source_).substr(at);
            const std::size_t space = leading_space(rest);
            if (!rest.substr(space).starts_with(name)) return std::string::npos;
            at += space + name.size();
            return at + leading_space(std::string_view(source_).substr(at));
        };
        const std::size_t close = word(at_ + begin, "raw");
        if (close == std::string::npos) return false;
        const std::string_view rest = std::string_view(source_).substr(close);
        if (!rest.starts_with("%}") && !rest.starts_with("-%}")) return false;
        const bool strip = rest.front() == '-';
        advance(close + (strip ? 3 : 2) - at_);
        if (strip) skip_space();
        for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
            const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
            const std::size_t end = word(tag + (sign == '-' || sign == '+' ? 3 : 2), "endraw");
            if (end == std::string::npos) continue;
            const std::string_view tail = std::string_view(source_).substr(end);
            const char last = tail.empty() ? '\0' : tail.front();
            const std::size_t sign_length = last == '-' || last == '+' ? 1 : 0;
            if (!tail.substr(sign_length).starts_with("%}")) continue;
            data(tag, sign, true);
            advance(end + sign_length + 2 - at_);
            after_end(last);
            return true;
        }
        fail("raw has no endraw");
    }

    void inside(bool print) {
        std::vector<char> open;  // parentheses
        const std::string_view end = print ? "}}" : "%}";
        const int line = line_;
        while (true) {
            if (at_ == source_.size()) {
                line_ = line;
                fail(text("a tag has no \"", end, "\""));
            }
            if (open.empty()) {
                const bool is_signed = peek() == '-' || (peek() == '+' && !print);
                const char sign = is_signed ? peek() : '\0';
                if (std::string_view(source_).substr(at_ + (is_signed ? 1 : 0)).starts_with(end)) {
                    put(print ? Kind::print_end : Kind::block_end, {});
                    advance(is_signed ? 3 : 2);
                    return after_end(print && sign == '\0' ? '+' : sign);
                }
            }
            const std::size_t space = leading_space(std::string_view(source_).substr(at_));
            if (space > 0) {
                advance(space);
            } else if (is_digit(peek())) {
                number();
            } else if (in_name(peek())) {
                name();
            } else if (peek() == '"' || peek() == '\'') {
                string();
            } else {
                sign(open);
            }
        }
    }

    void name() {
        std::size_t length = 0;
        while (in_name(peek(length))) ++length;
        put(Kind::name, source_.substr(at_, length));
        advance(length);
    }

    void number() {
        std::string digits;
        std::size_t length = 0;
        const auto take_digits = [&] {
            while (is_digit(peek(length)) || (peek(length) == '_' && is_digit(peek(length + 1)))) {
                if (peek(length) != '_') digits += peek(length);
                ++length;
            }
        };
        take_digits();
        bool real = false;
        const bool after_dot = !tokens_.empty() && tokens_.back().kind == Kind::sign && tokens_.back().text == ".";
        if (!after_dot && peek(length) == '.' && is_digit(peek(length + 1))) {
            real = true;
            digits += '.';
            ++length;
            take_digits();
        }
        const bool e = peek(length) == 'e' || peek(length) == 'E';
        const std::size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-' ? 1 : 0;
        if (!after_dot && e && is_digit(peek(length + 1 + sign))) {
            real = true;
            digits += source_.substr(at_ + length, 1 + sign);
            length += 1 + sign;
            take_digits();
        }
        if (in_name(peek(length))) fail("a number is followed by letters");
        put(real ? Kind::real : Kind::integer, digits);
        advance(length);
    }

    void string() {
        const char quote = peek();
        std::string value;
        std::size_t at = at_ + 1;
        for (; at < source_.size() && source_[at] != quote; ++at) {
            if (source_[at] == '\\' && at + 1 < source_.size()) {
                escape(++at, value);
            } else {
                value += source_[at];
            }
        }
        if (at == source_.size()) fail("a string has no end");
        put(Kind::string, value);
        advance(at + 1 - at_);
    }

    /// Python's escape at `at`, the byte after the backslash; `at` becomes its last byte.
    void escape(std::size_t& at, std::string& value) {
        constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
        const char c = source_[at];
        const std::size_t known = kNames.find(c);
        if (known != std::string_view::npos) {
            value += kValues[known];
        } else if (c == '\n') {  // continues on the next line
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            char32_t code = 0;
            for (std::size_t i = 1; i <= digits; ++i) {
                const char digit = at + i < source_.size() ? source_[at + i] : '\0';
                if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) fail("a string has an escape cut short");
                code = code * 16 + static_cast<char32_t>(is_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
            }
            if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a string has an escape of no character");
            append_utf8(value, code);
            at += digits;
        } else if (c >= '0' && c <= '7') {
            char32_t code = 0;
            std::size_t digits = 0;
            for (; digits < 3 && at + digits < source_.size() && source_[at + digits] >= '0' &&
                   source_[at + digits] <= '7';
                 ++digits) {
                code = code * 8 + static_cast<char32_t>(source_[at + digits] - '0');
            }
            append_utf8(value, code);
            at += digits - 1;
        } else if (c == 'N') {
            fail("a string has the escape \\N, which is not supported");
        } else {
            value += '\\';
            value += c;
        }
    }

    void sign(std::vector<char>& open) {
        constexpr std::array<std::string_view, 6> kTwo{"==", "!=", ">=", "<=", "//", "**"};
        constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
        for (const std::string_view two : kTwo) {
            if (!here(two)) continue;
            put(Kind::sign, std::string(two));
            return advance(2);
        }
        const char c = peek();
        if (kOne.find(c) == std::string_view::npos) {
            fail(text("unexpected \"", printable(std::string_view(&source_[at_], 1), ""), "\""));
        }
        if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
        if (c == ')' || c == ']' || c == '}') {
            if (open.empty() || open.back() != c) fail(text("a \"", c, "\" is left over"));
            open.pop_back();
        }
        put(Kind::sign, std::string(1, c));
        advance(1);
    }

    std::string source_;
    std::size_t at_ = 0;
    int line_ = 1;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).read(); }

}  // namespace coda::jinja
