// Where a long text may be cut so that its parts give the tokens of the whole.
//
// In the expressions of GPT-2, Llama-3 and Qwen2 a token never reaches across these places, and a token that ends there
// depends on no more than the one code point after it:
//
//   line   after "\n", before a code point that is not white space
//   word   before one space that stands between two visible ASCII characters
//   digit  between an ASCII digit and an ASCII letter, in this order
//
// Proof, with L letters, N numbers: only the alternatives of white space and ` ?[^\s\p{L}\p{N}]+[\r\n]*` hold "\n", and
// what follows it there is white space. At "word" the space is not followed by white space, so no alternative that has
// taken a visible character continues into it. No alternative continues from a number to a letter. NFC composes neither
// with white space nor with ASCII letters on the right. Parts between added tokens are texts of their own, so no cut is
// made at a place that an added token touches.
#pragma once

#include <cstddef>
#include <string_view>

#include "src/tokenize/tokenizer.h"

namespace coda {

struct Cut {
    std::size_t at = 0;         // bytes of the first part; 0 when there is no place to cut
    std::size_t lookahead = 0;  // bytes of the code point after it
};

/// The last "line" of `text`, else the last "word", else the last "digit". `text` is the start of a longer one and need
/// not be valid UTF-8.
Cut find_cut(const Tokenizer& tokenizer, std::string_view text);

}  // namespace coda
