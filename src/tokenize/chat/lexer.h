// A template's source as tokens, with the options of transformers: trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coda::jinja {

struct Token {
    enum class Kind : std::uint8_t {
        data,  // text between tags, as it is rendered
        block_begin,
        block_end,
        print_begin,
        print_end,
        name,
        string,  // text: the value, with escapes replaced
        integer,
        real,
        sign,  // an operator or a parenthesis
        end
    };
    Kind kind = Kind::end;
    std::string text{};
    int line = 1;
};

/// Ends with a token `end`. Throws Error "line N: ...".
std::vector<Token> tokens_of(std::string_view source);

}  // namespace coda::jinja
