#include "src/generate/program/prompts.h"

#include <algorithm>
#include <utility>

#include "src/core/errors.h"
#include "src/io/text_marks.h"
#include "src/model/tensors/streams.h"
#include "src/tokenize/chat/render.h"

namespace coda {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
    const std::string message = place + ": " + why;
    if (place == "--prompt") throw UsageError(message);
    throw Error(message);
}

void append(std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
}

void add_end(PreparedPrompt& prepared, std::int32_t token) {
    std::vector<std::int32_t>& ends = prepared.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
}

}  // namespace

std::int32_t PromptReader::marker(const std::string& text) const {
    const std::optional<std::int32_t> id = rules_.codec.id_of(text);
    require(id.has_value(), "the chat template belongs to ", name_of(*template_), ", but the tokenizer has no token ",
            text);
    return *id;
}

std::vector<std::int32_t> PromptReader::chat_tokens(std::vector<ChatMessage> messages, const std::string& place) {
    if (!template_) template_ = rules_.read_template();
    if (rules_.system && messages.front().role != "system") {
        messages.insert(messages.begin(), {.role = "system", .content = *rules_.system});
    }
    for (std::size_t i = 1; i < messages.size(); ++i) {
        if (messages[i].role == "system") refuse(place, "a system message is the first of a chat, or there is none");
    }
    std::vector<std::int32_t> tokens;
    for (const ChatPiece& piece : render_chat(*template_, messages, rules_.date)) {
        if (piece.marker) {
            tokens.push_back(marker(piece.text));
        } else {
            append(tokens, rules_.codec.encode_plain(piece.text));
        }
    }
    return tokens;
}

PreparedPrompt PromptReader::prepare(const GenerationRequest& request) {
    PreparedPrompt prepared{.tokens = request.tokens, .end_tokens = rules_.end_tokens};
    std::vector<ChatMessage> messages = request.messages;
    if (request.prompt && rules_.chat) messages.push_back({.role = "user", .content = *request.prompt});
    if (!messages.empty()) {
        prepared.tokens = chat_tokens(std::move(messages), request.place);
        prepared.own_text = true;
        add_end(prepared, marker(end_of_message(*template_)));
    } else if (request.prompt) {
        prepared.tokens = rules_.codec.encode(*request.prompt);
        begin_text(rules_.start, prepared.tokens);
        if (prepared.tokens.empty() && rules_.bos) prepared.tokens = {*rules_.bos};
    }
    for (const std::string& stop : request.stop) {
        const std::optional<std::int32_t> token = rules_.codec.id_of(stop);
        if (token && !rules_.codec.is_text(*token)) add_end(prepared, *token);
    }
    const auto count = static_cast<std::int64_t>(prepared.tokens.size());
    if (count == 0) {
        refuse(request.place, "there is nothing to begin with: the prompt is empty, and the model has no bos_token_id");
    }
    if (rules_.score && count < 2) refuse(request.place, "a text of one token has no loss: nothing follows it");
    require(static_cast<std::int64_t>(prepared.end_tokens.size()) <= kMostEndTokens, "eos_token_id: the model has ",
            prepared.end_tokens.size(), " end tokens, and a sequence takes up to ", kMostEndTokens);
    for (const std::int32_t token : prepared.tokens) {
        if (token < rules_.vocab) continue;
        refuse(request.place, text("the token ", token, " is outside of the model's vocab_size ", rules_.vocab));
    }
    if (count >= rules_.context) {
        refuse(request.place,
               text("the prompt has ", count, " tokens, and a context of ", rules_.context,
                    " positions leaves no room for another; give a shorter prompt or a larger --context"));
    }
    return prepared;
}

}  // namespace coda
