// UTF-8: what is valid (Unicode 15, table 3-7), and how the rest is replaced.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coda {

/// A code point and the bytes it takes; length 0 where the text does not begin with a valid sequence.
struct CodePoint {
    char32_t value = 0;
    std::size_t length = 0;
};

/// The code point at the start of `text`.
CodePoint decode_utf8(std::string_view text);

/// The code point that ends at byte `end` of `text`, valid UTF-8; `end` > 0.
CodePoint last_code_point(std::string_view text, std::size_t end);

/// Appends a Unicode scalar value.
void append_utf8(std::string& out, char32_t value);

/// A Unicode scalar value as text.
std::string utf8_of(char32_t value);

/// The number of bytes before the first invalid sequence: text.size() where all is valid.
std::size_t valid_utf8(std::string_view text);

/// `text` with U+FFFD in place of each maximal part of an invalid sequence, as Python's errors="replace" does.
std::string replace_invalid_utf8(std::string_view text);

/// The number of bytes at the end of `text` that begin a sequence and lack only bytes that may follow: 0 to 3.
std::size_t unfinished_utf8(std::string_view text);

/// Whether a code point has the property White_Space, which is what `\s` means to tokenizers.
bool is_space(char32_t value);

}  // namespace coda
