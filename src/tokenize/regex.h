// The regular expression of a pre-tokenizer on PCRE2 (UTF, UCP, JIT).
//
// Tokenizer files are written for Oniguruma. The part of its syntax that means the same to both engines is accepted,
// and anything else is refused by name: literals; the escapes \r \n \t \s \S \d \D and \p{..} \P{..} of a general
// category; classes of these; ? * + {m,n}, lazy and possessive; |; $; and the groups ( (?: (?i: (?= (?!. `\s` is
// White_Space, as in Oniguruma (PCRE2 adds U+180E).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace coda {

/// A compiled expression; immutable, may be shared by threads.
class Regex {
  public:
    /// Throws Error with `where`, the expression and the part that is not accepted. An expression that can match the
    /// empty text is refused.
    Regex(const std::string& pattern, const std::string& where);
    ~Regex();
    Regex(const Regex&) = delete;
    Regex& operator=(const Regex&) = delete;

  private:
    friend class RegexScanner;
    struct Code;
    std::unique_ptr<Code> code_;
};

struct Match {
    std::size_t begin = 0, end = 0;
};

/// Searches with one expression. Each thread has its own. The expression must outlive it.
class RegexScanner {
  public:
    explicit RegexScanner(const Regex& regex);
    ~RegexScanner();
    RegexScanner(const RegexScanner&) = delete;
    RegexScanner& operator=(const RegexScanner&) = delete;

    /// The first match in `text`, valid UTF-8, that begins at or after `from`. Throws Error when the engine gives up,
    /// which the expressions of the known families cannot make it do.
    std::optional<Match> find(std::string_view text, std::size_t from);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// The expression as PCRE2 is given it; throws as Regex does.
std::string to_pcre2(const std::string& pattern, const std::string& where);

}  // namespace coda
