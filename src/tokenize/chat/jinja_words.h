// The words of a Jinja template: its string literals, its names, and the text outside of tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coda {

struct JinjaWord {
    enum class Kind {
        statement,   // "{%" begins
        expression,  // "{{" begins
        close,       // either ends
        literal,     // text: the string's value, with escapes replaced
        name,
        sign,
        outside  // text between tags that is rendered
    };
    Kind kind = Kind::sign;
    std::string text{};
};

/// In order, without comments and numbers. Of the white space between tags only what is rendered counts, with the
/// options of transformers (trim_blocks, lstrip_blocks). Throws Error "WHERE: ..." for a tag or string without an end.
std::vector<JinjaWord> jinja_words(std::string_view jinja, const std::string& where);

}  // namespace coda
