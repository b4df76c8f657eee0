#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/core/choice_options.h"
#include "src/core/utf8.h"
#include "src/generate/request.h"
#include "src/tokenize/chat/render.h"
#include "src/tokenize/chat/template.h"
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

void chat_template(std::span<const std::byte> input) {
    const ChatTemplate known = recognise_chat_template(text_of(input), "input");
    const auto pieces = render_chat(known, {{"user", "Hello"}}, "05 Mar 2027");
    promise(pieces.front().marker, "a chat begins with no marker");
    promise(!pieces.back().marker, "a chat ends with a marker, not with a header");
    std::string last;
    for (const ChatPiece& piece : pieces) last = piece.marker ? piece.text : last;
    promise(last == "<|im_start|>" || last == "<|end_header_id|>", "a chat ends with no header of an answer");
}

}  // namespace coda::fuzz
