// Which two neighbouring characters an expression surely keeps apart, derived from the expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/tokenize/regex.h"

namespace coda {

/// What a search for all matches does at a place between two characters, whatever stands before and after them.
enum class PairFate : std::uint8_t {
    unknown,   // the place may lie within a match, or depend on more than the two characters
    divided,   // a match begins or ends there, and no lookahead sees further than the second character
    untouched  // neither character is ever part of a match
};

/// An expression as its positions, the places of single characters in it, and what may follow what (Glushkov's
/// automaton). Without a path from a position that takes x to one that takes y, no match holds "xy".
class RegexPairs {
  public:
    /// `pattern` is one that Regex accepts.
    RegexPairs(const std::string& pattern, const std::string& where);

    PairFate fate(char32_t x, char32_t y) const;

    /// Whether a search that comes to this character surely finds a match that begins with it.
    bool is_match(char32_t value) const { return analyzed_ && character(value).matched; }

  private:
    friend class RegexPairsParser;
    struct Character {
        std::vector<bool> taken;  // by position
        bool matched = false;     // from here on there is a match, whatever follows
        bool ever = false;        // part of any match
    };
    const Character& character(char32_t value) const;

    std::vector<std::size_t> atom_of_;              // by position
    std::vector<std::unique_ptr<Regex>> atoms_;     // expressions of single characters
    std::vector<std::vector<std::size_t>> follow_;  // by position
    std::vector<bool> alone_;                       // by position: enough for a match, whatever follows
    bool analyzed_ = false;                         // else no fate is known
    mutable std::map<char32_t, Character> characters_;
};

}  // namespace coda
