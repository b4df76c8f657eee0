// Where a long text may be cut so that its parts give the tokens of the whole.
//
// A cut lies between two characters x and y which the tokenizer keeps apart whatever stands around them. The left part
// is encoded with y as its lookahead, the right part as one that follows a cut. What keeps them apart is derived from
// the tokenizer:
//
//   added tokens   none touches the place, and x and y are not both white space, which a token with lstrip or rstrip
//                  could take across it
//   normalizer     Replace treats single characters, and NFC composes neither x with y nor y with what follows it
//   pre-tokenizer  step by step: an expression surely ends or begins a match there (regex_pairs.h), and no later step
//                  sees both; or it leaves both as they are, and the next step decides. Metaspace may come first.
//   BPE            if no step divides them: no token of the vocabulary reaches from x to y (bpe_model.h)
#pragma once

#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tokenize/regex_pairs.h"
#include "src/tokenize/tokenizer.h"

namespace coda {

struct Cut {
    std::size_t at = 0;         // bytes of the first part; 0 when there is no place to cut
    std::size_t lookahead = 0;  // bytes of the character after it
};

class TextCutter {
  public:
    /// The tokenizer must outlive it.
    explicit TextCutter(const Tokenizer& tokenizer);

    /// The last cut after a line end of `text`, else the last one at all after an ASCII character. `text` is the start
    /// of a longer one and need not be valid UTF-8.
    Cut find(std::string_view text);

  private:
    bool divides(char32_t x, char32_t y);
    bool derive(char32_t x, char32_t y) const;
    bool composes(std::string_view text, std::size_t at, char32_t y, std::size_t length) const;
    bool added_token_touches(std::string_view text, std::size_t begin, std::size_t end) const;

    const Tokenizer& tokenizer_;
    std::vector<std::unique_ptr<RegexPairs>> pairs_;  // by step, null for one without an expression
    std::map<std::pair<char32_t, char32_t>, bool> known_;
    bool nfc_ = false;
};

}  // namespace coda
