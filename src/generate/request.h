// Requests and answers of generation, as JSON Lines. docs/FORMATS.md describes both.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/math/sampling.h"
#include "src/tokenize/chat/template.h"

namespace coda {

/// Tokens of a sequence, where neither flag nor request says how many.
inline constexpr std::int64_t kDefaultTokens = 256;

/// What a sequence is made with, unless its request says otherwise.
struct GenerationDefaults {
    std::int64_t max_tokens = kDefaultTokens;
    ChoiceOptions choice{};
    std::vector<std::string> stop{};
};

/// One sequence that is asked for. Exactly one of prompt, tokens and messages is there.
struct GenerationRequest {
    nlohmann::json id{};  // a string or an integer, as it was given
    std::optional<std::string> prompt{};
    std::vector<std::int32_t> tokens{};
    std::vector<ChatMessage> messages{};
    std::int64_t max_tokens = 0;
    ChoiceOptions choice{};
    std::vector<std::string> stop{};
    std::string place{};  // "FILE:LINE", for messages
};

/// The request of one line of JSON; without an "id" it is the line's number. Throws Error "FILE:LINE: ..." that names
/// the key: no JSON object, an unknown key, a wrong type, a value out of range, no prompt or several.
GenerationRequest parse_request(std::string_view line, const std::string& file, std::int64_t number,
                                const GenerationDefaults& defaults);

enum class Finish : std::uint8_t { stop, length, cancelled };

/// "stop": an end token or a stop text. "length": max_tokens, or the context is full. "cancelled": interrupted.
const char* name_of(Finish finish);

struct GenerationAnswer {
    nlohmann::json id{};
    std::string text{};                  // valid UTF-8
    std::vector<std::int32_t> tokens{};  // all that were made, with an end token and the tokens of a stop text
    Finish finish = Finish::length;
    std::int64_t prompt_tokens = 0;
    double ms = 0;  // from the start of the prompt to the last token
};

/// The answer as one line, with its line end. It is only ASCII, so that no reader of lines cuts it at U+2028.
std::string answer_line(const GenerationAnswer& answer);

}  // namespace coda
