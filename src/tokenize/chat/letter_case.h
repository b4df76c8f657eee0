// Upper, lower and title case of a character, as Python has them.
#pragma once

#include <string>
#include <string_view>

#include "src/core/utf8.h"

namespace coda::jinja {

enum class LetterCase : std::uint8_t { upper, lower, title };

/// Whether the character has two cases; str.title() takes it for a part of a word.
bool is_letter(char32_t value);

/// The character that begins at byte `at` of `text`, in another case. A capital sigma at the end of a word becomes a
/// final one.
std::string letter_in_case(std::string_view text, std::size_t at, CodePoint character, LetterCase form);

}  // namespace coda::jinja
