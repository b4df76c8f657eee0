#include "src/generate/program/prompts.h"

#include <algorithm>
#include <utility>

#include "src/config/shell_quote.h"
#include "src/core/errors.h"
#include "src/io/text_marks.h"
#include "src/model/tensors/streams.h"

namespace coda {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
    const std::string message = place + ": " + why;
    if (place == "--prompt") throw UsageError(message);
    throw Error(message);
}

void add_end(PreparedPrompt& prepared, std::int32_t token) {
    std::vector<std::int32_t>& ends = prepared.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
}

}  // namespace

/// The tokens of a rendered text. What a message spells never becomes a special token.
std::vector<std::int32_t> PromptReader::encode(const Rendered& rendered) const {
    std::vector<TextRange> messages;
    for (const RenderedRun& run : rendered.runs) {
        if (run.message >= 0) messages.push_back({run.begin, run.end});
    }
    return rules_.codec.encode_chat(rendered.text, messages);
}

/// The special token that the template puts after an assistant's message, if it puts one there.
std::optional<std::int32_t> PromptReader::end_of_turn() const {
    ChatContext context = chat_->context;
    context.add_generation_prompt = false;
    Rendered rendered;
    try {
        rendered = chat_->jinja.render({{"user", "a"}, {"assistant", "b"}}, context);
    } catch (const InterruptedError&) {
        throw;
    } catch (const Error&) {  // it wants other conversations
        return std::nullopt;
    }
    std::size_t end = 0;
    for (const RenderedRun& run : rendered.runs) end = run.message == 1 ? run.end : end;
    if (end == 0) return std::nullopt;
    for (const std::int32_t token : rules_.codec.encode_chat(rendered.text.substr(end), {})) {
        if (!rules_.codec.is_text(token)) return token;
    }
    return std::nullopt;
}

std::vector<std::int32_t> PromptReader::chat_tokens(std::vector<ChatMessage> messages, const std::string& place) {
    if (!chat_) {
        chat_ = rules_.read_chat();
        end_of_turn_ = end_of_turn();
    }
    if (rules_.system && messages.front().role != "system") {
        messages.insert(messages.begin(), {.role = "system", .content = *rules_.system});
    }
    for (std::size_t i = 1; i < messages.size(); ++i) {
        if (messages[i].role == "system") refuse(place, "a system message is the first of a chat, or there is none");
    }
    try {
        return encode(chat_->jinja.render(messages, chat_->context));
    } catch (const InterruptedError&) {
        throw;
    } catch (const Error& error) {
        throw Error(text(place, ": ", error.what()));
    }
}

PreparedPrompt PromptReader::prepare(const GenerationRequest& request) {
    PreparedPrompt prepared{.tokens = request.tokens, .end_tokens = rules_.end_tokens};
    std::vector<ChatMessage> messages = request.messages;
    if (request.prompt && rules_.chat) messages.push_back({.role = "user", .content = *request.prompt});
    if (!messages.empty()) {
        prepared.tokens = chat_tokens(std::move(messages), request.place);
        prepared.own_text = true;
        if (end_of_turn_) add_end(prepared, *end_of_turn_);
    } else if (request.prompt) {
        prepared.tokens = rules_.codec.encode(*request.prompt);
        begin_text(rules_.start, prepared.tokens);
        if (prepared.tokens.empty() && rules_.bos) prepared.tokens = {*rules_.bos};
    }
    for (const std::string& stop : request.stop) {
        const std::optional<std::int32_t> token = rules_.codec.id_of(stop);
        if (token && !rules_.codec.is_text(*token)) {
            add_end(prepared, *token);
            continue;
        }
        for (const std::int32_t part : rules_.codec.encode(stop)) {
            if (rules_.codec.is_text(part)) continue;
            refuse(request.place,
                   text("the stop text ", quote(stop), " has the special token ", rules_.codec.decode(part),
                        " in it, which no text has; give that token as another stop text"));
        }
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
