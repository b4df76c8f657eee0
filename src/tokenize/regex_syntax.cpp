// From Oniguruma's syntax to PCRE2's: see regex.h for what is accepted.
#include <algorithm>
#include <array>

#include "kernels/core/error.h"
#include "src/tokenize/regex.h"

namespace coda {
namespace {

constexpr std::array<std::string_view, 37> kCategories{
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
constexpr std::array<std::string_view, 5> kGroups{"(?:", "(?i:", "(?=", "(?!", "("};
constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";  // White_Space
constexpr std::string_view kPunctuation = "\\.[](){}?*+|^$-/'\"#!@%&=<>,;:~`_ ";

class Translator {
  public:
    Translator(std::string_view pattern, const std::string& where) : whole_(pattern), rest_(pattern), where_(where) {}

    std::string run() {
        while (!rest_.empty()) item();
        return out_;
    }

  private:
    [[noreturn]] void refuse(std::string_view part) const {
        throw Error(text(where_, ": \"", part, "\" in the regular expression ", whole_,
                         " is not supported: it may mean another thing to PCRE2, this program's engine, than to the "
                         "library's"));
    }

    std::string_view take(std::size_t count) {
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(taken.size());
        return taken;
    }

    void item() {
        switch (rest_.front()) {
            case '\\': return escape(false);
            case '[': return character_class();
            case '(': return group();
            case '{': return repeat();
            case '^':
            case '.': refuse(take(1));
            case '$':  // Oniguruma's: before a line end, and at the end even after one
                take(1);
                out_ += R"((?=\n|\z))";
                return;
            case '#':  // both engines take these literally outside (?x)
            default: out_ += take(1);
        }
    }

    void group() {
        const auto* known =
            std::find_if(kGroups.begin(), kGroups.end(), [&](std::string_view g) { return rest_.starts_with(g); });
        const bool plain = *known == "(";
        if (plain && rest_.size() > 1 && (rest_[1] == '?' || rest_[1] == '*')) refuse(rest_.substr(0, 4));
        out_ += take(known->size());
    }

    /// {m}, {m,} or {m,n}; Oniguruma also has {,n}, and {m,n}+ means another thing there.
    void repeat() {
        const std::size_t close = rest_.find('}');
        if (close == std::string_view::npos) refuse(rest_);
        const std::string_view all = take(close + 1), inner = all.substr(1, all.size() - 2);
        const bool digits = inner.find_first_not_of("0123456789,") == std::string_view::npos;
        if (!digits || inner.empty() || inner.front() == ',' || std::count(inner.begin(), inner.end(), ',') > 1) {
            refuse(all);
        }
        if (!rest_.empty() && (rest_.front() == '+' || rest_.front() == '?')) refuse(text(all, rest_.front()));
        out_ += all;
    }

    void escape(bool in_class) {
        if (rest_.size() < 2) refuse(rest_);
        const char kind = rest_[1];
        if (kind == 's' || (kind == 'S' && !in_class)) {
            take(2);
            if (in_class) {
                out_ += kSpace;
            } else {
                out_ += text(kind == 's' ? "[" : "[^", kSpace, "]");
            }
        } else if (kind == 'p' || kind == 'P') {
            const std::size_t close = rest_.find('}');
            if (close == std::string_view::npos || rest_.size() < 3 || rest_[2] != '{') refuse(rest_.substr(0, 3));
            const std::string_view all = take(close + 1), name = all.substr(3, all.size() - 4);
            if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) refuse(all);
            out_ += all;
        } else if (std::string_view("rntdD").find(kind) != std::string_view::npos ||
                   kPunctuation.find(kind) != std::string_view::npos) {
            out_ += take(2);
        } else {
            refuse(rest_.substr(0, 2));
        }
    }

    /// [...] or [^...]; nested classes and && are Oniguruma's own.
    void character_class() {
        out_ += take(rest_.starts_with("[^") ? 2 : 1);
        bool empty = true;
        while (!rest_.empty() && rest_.front() != ']') {
            if (rest_.front() == '[' || rest_.starts_with("&&")) refuse(rest_.substr(0, 2));
            if (rest_.front() == '\\') {
                escape(true);
            } else {
                out_ += take(1);
            }
            empty = false;
        }
        if (rest_.empty() || empty) refuse(whole_);
        out_ += take(1);
    }

    std::string_view whole_, rest_;
    std::string where_;
    std::string out_;
};

}  // namespace

std::string to_pcre2(const std::string& pattern, const std::string& where) { return Translator(pattern, where).run(); }

}  // namespace coda
