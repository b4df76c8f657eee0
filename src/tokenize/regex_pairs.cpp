#include "src/tokenize/regex_pairs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/utf8.h"

namespace coda {
namespace {

using Positions = std::vector<std::size_t>;

constexpr std::size_t kMaxPositions = 512;  // of one expression; a longer one is not analyzed

/// What the construction needs to know of a part of the expression.
struct Node {
    Positions first{}, last{};
    Positions alone{};       // positions that match the part by themselves, whatever follows
    bool nullable = false;   // may take nothing
    bool skippable = false;  // may take nothing, whatever follows
};

void append(Positions& to, const Positions& from) { to.insert(to.end(), from.begin(), from.end()); }

/// Thrown where an expression has a part that the analysis does not know.
struct NotAnalyzed {};

}  // namespace

class RegexPairsParser {
  public:
    RegexPairsParser(RegexPairs& pairs, std::string_view pattern, const std::string& where)
        : pairs_(pairs), rest_(pattern), where_(where) {}

    void run() {
        const Node whole = alternatives();
        if (!rest_.empty()) throw NotAnalyzed();
        pairs_.alone_.assign(pairs_.atom_of_.size(), false);
        for (const std::size_t position : whole.alone) pairs_.alone_[position] = true;
        for (Positions& follow : pairs_.follow_) {
            std::sort(follow.begin(), follow.end());
            follow.erase(std::unique(follow.begin(), follow.end()), follow.end());
        }
    }

  private:
    std::string_view take(std::size_t count) {
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(taken.size());
        return taken;
    }
    bool take_if(std::string_view word) { return rest_.starts_with(word) && !take(word.size()).empty(); }

    Node alternatives() {
        Node all = sequence();
        while (take_if("|")) {
            const Node next = sequence();
            append(all.first, next.first);
            append(all.last, next.last);
            append(all.alone, next.alone);
            all.nullable |= next.nullable;
            all.skippable |= next.skippable;
        }
        return all;
    }

    Node sequence() {
        Node all{.nullable = true, .skippable = true};
        while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
            const Node next = repeated(item());
            join(all.last, next.first);
            if (all.nullable) append(all.first, next.first);
            if (!next.nullable) all.last.clear();
            append(all.last, next.last);
            if (!next.skippable) all.alone.clear();
            if (all.skippable) append(all.alone, next.alone);
            all.nullable &= next.nullable;
            all.skippable &= next.skippable;
        }
        return all;
    }

    void join(const Positions& from, const Positions& to) {
        for (const std::size_t position : from) append(pairs_.follow_[position], to);
    }

    Node repeated(Node node) {
        while (!rest_.empty()) {
            bool optional = false, many = false, twice = false;
            if (rest_.front() == '{') {
                const std::string_view bounds = take(rest_.find('}') + 1);
                optional = bounds.starts_with("{0");  // {01,2} as well, which promises less than it could
                twice = !optional && !bounds.starts_with("{1,") && bounds != "{1}";
                many = bounds != "{1}";
            } else if (rest_.front() == '?' || rest_.front() == '*' || rest_.front() == '+') {
                const char kind = take(1).front();
                optional = kind != '+';
                many = kind != '?';
            } else {
                break;
            }
            const bool possessive = take_if("+");  // does not give back what it has taken
            if (!possessive) take_if("?");
            if (many) join(Positions(node.last), node.first);
            node.nullable |= optional;
            node.skippable = (node.skippable || optional) && !possessive;
            if (twice) node.alone.clear();
        }
        return node;
    }

    Node item() {
        if (take_if("(?=") || take_if("(?!")) return lookahead();
        const bool insensitive = rest_.starts_with("(?i:");
        if (take_if("(?i:") || take_if("(?:") || take_if("(")) {
            const bool before = std::exchange(insensitive_, insensitive_ || insensitive);
            if (++depth_ > 100) throw NotAnalyzed();
            Node node = alternatives();
            --depth_;
            insensitive_ = before;
            if (!take_if(")")) throw NotAnalyzed();
            return node;
        }
        if (take_if("$")) return {.nullable = true};  // sees one character
        return atom(take_atom());
    }

    /// The group must be one character, so that no more is seen.
    Node lookahead() {
        take_atom();
        if (!take_if(")")) throw NotAnalyzed();
        return {.nullable = true};
    }

    /// The text of an escape, a class or a character.
    std::string_view take_atom() {
        if (rest_.empty() || std::string_view("()|?*+{").find(rest_.front()) != std::string_view::npos) {
            throw NotAnalyzed();
        }
        if (rest_.front() == '\\') {
            const bool property = rest_.starts_with("\\p") || rest_.starts_with("\\P");
            return take(property ? rest_.find('}') + 1 : 2);
        }
        if (rest_.front() != '[') return take(std::max<std::size_t>(decode_utf8(rest_).length, 1));
        std::size_t at = 1;
        while (at < rest_.size() && rest_[at] != ']') at += rest_[at] == '\\' ? 2 : 1;
        return take(at + 1);
    }

    Node atom(std::string_view spelling) {
        const std::size_t position = pairs_.atom_of_.size();
        if (position == kMaxPositions) throw NotAnalyzed();
        const std::string expression = insensitive_ ? text("(?i:", spelling, ")") : std::string(spelling);
        const auto [known, is_new] = atoms_.emplace(expression, pairs_.atoms_.size());
        if (is_new) pairs_.atoms_.push_back(std::make_unique<Regex>(expression, where_));
        pairs_.atom_of_.push_back(known->second);
        pairs_.follow_.emplace_back();
        return {.first = {position}, .last = {position}, .alone = {position}};
    }

    RegexPairs& pairs_;
    std::string_view rest_;
    std::string where_;
    std::map<std::string, std::size_t> atoms_;
    bool insensitive_ = false;
    int depth_ = 0;
};

RegexPairs::RegexPairs(const std::string& pattern, const std::string& where) {
    try {
        RegexPairsParser(*this, pattern, where).run();
        analyzed_ = true;
    } catch (const NotAnalyzed&) {
        analyzed_ = false;
    }
}

const RegexPairs::Character& RegexPairs::character(char32_t value) const {
    const auto known = characters_.find(value);
    if (known != characters_.end()) return known->second;
    std::string spelling;
    append_utf8(spelling, value);
    std::vector<bool> taken;  // by atom
    for (const auto& atom : atoms_) taken.push_back(RegexScanner(*atom).find(spelling, 0).has_value());
    Character result;
    for (std::size_t position = 0; position < atom_of_.size(); ++position) {
        const bool here = taken[atom_of_[position]];
        result.taken.push_back(here);
        result.ever |= here;
        result.matched |= here && alone_[position];
    }
    return characters_.emplace(value, std::move(result)).first->second;
}

PairFate RegexPairs::fate(char32_t x, char32_t y) const {
    if (!analyzed_) return PairFate::unknown;
    const Character &before = character(x), &after = character(y);
    if (!before.ever && !after.ever) return PairFate::untouched;
    if (!before.matched && !after.matched) return PairFate::unknown;
    for (std::size_t position = 0; position < follow_.size(); ++position) {
        if (!before.taken[position]) continue;
        for (const std::size_t next : follow_[position]) {
            if (after.taken[next]) return PairFate::unknown;
        }
    }
    return PairFate::divided;
}

}  // namespace coda
