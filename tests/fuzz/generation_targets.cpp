#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/core/choice_options.h"
#include "src/core/utf8.h"
#include "src/generate/request.h"
#include "tests/fuzz/targets.h"

namespace coda::fuzz {

namespace {

std::string_view text_of(std::span<const std::byte> input) {
    return {reinterpret_cast<const char*>(input.data()), input.size()};
}

bool is_text(const std::string& text) { return valid_utf8(text) == text.size(); }

}  // namespace

void request(std::span<const std::byte> input) {
    const GenerationRequest request = parse_request(text_of(input), "input", 1, {});
    const int prompts =
        (request.prompt ? 1 : 0) + (request.tokens.empty() ? 0 : 1) + (request.messages.empty() ? 0 : 1);
    promise(prompts == 1, "a request has no prompt or several");
    promise(!choice_problem(request.choice), "options that are not valid were accepted");
    promise(request.max_tokens >= 1, "a request of no tokens was accepted");
    promise(is_text(request.prompt.value_or("")), "a prompt is not UTF-8");
    for (const ChatMessage& message : request.messages) promise(is_text(message.content), "a message is not UTF-8");
    for (const std::string& stop : request.stop) promise(!stop.empty() && is_text(stop), "a stop text is bad");
    const std::string line = answer_line({.id = request.id, .text = request.prompt.value_or("")});
    promise(nlohmann::json::parse(line)["id"] == request.id, "an answer has another id");
    promise(line.find('\n') == line.size() - 1, "an answer is more than a line");
}

}  // namespace coda::fuzz
