// What Python's str does, on text with origins. Lengths and positions count code points unless they are named bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/origin_text.h"

namespace coda::jinja {

/// Whether str.isspace() holds: White_Space, and the four separators of ASCII.
bool is_python_space(char32_t value);

/// Bytes of white space at the beginning and at the end.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

std::int64_t length_of(std::string_view text);
/// The byte at which code point `index` begins; the size where there are fewer.
std::size_t byte_of(std::string_view text, std::int64_t index);

enum class Sides : std::uint8_t { both, left, right };
/// The byte at which `part` occurs first at or after `from`, else npos; in linear time.
std::size_t find_part(std::string_view text, std::string_view part, std::size_t from);

/// Without white space, or without `characters`.
OriginText stripped(const OriginText& text, Sides sides, std::optional<std::string_view> characters = std::nullopt);

/// Without `separator`: at runs of white space. `most` cuts, if not negative.
std::vector<OriginText> split(const OriginText& text, std::optional<std::string_view> separator, std::int64_t most,
                              bool from_right, Budget& budget);

/// `most` replacements, if not negative.
OriginText replaced(const OriginText& text, std::string_view old, const OriginText& by, std::int64_t most,
                    Budget& budget);

OriginText reversed(const OriginText& text);

enum class Case : std::uint8_t {
    upper,
    lower,
    capitalize,  // the first character, and lower case for all others
    title        // the first letter of each run of letters
};
OriginText with_case(const OriginText& text, Case form);

}  // namespace coda::jinja
