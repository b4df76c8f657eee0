// What a request asks to continue, as tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/generate/request.h"
#include "src/text/codec.h"
#include "src/tokenize/chat/chat_files.h"

namespace coda {

/// How prompts become tokens; the same for all of them.
struct PromptRules {
    TextCodec& codec;
    std::int64_t vocab = 0, context = 0;
    std::vector<std::int32_t> start{};  // begins a text (src/io/text_marks.h)
    std::optional<std::int32_t> bos{};  // the first token of an empty text that otherwise has none
    std::vector<std::int32_t> end_tokens{};
    bool chat = false;                      // a "prompt" is a user's message
    bool score = false;                     // it is a text whose loss is asked for
    std::optional<std::string> system{};    // of a chat that has none
    std::function<ChatForm()> read_chat{};  // called once, by the first chat
};

struct PreparedPrompt {
    std::vector<std::int32_t> tokens, end_tokens;
    bool own_text = false;  // the answer of a chat: a new text, which does not continue the prompt
};

class PromptReader {
  public:
    explicit PromptReader(PromptRules rules) : rules_(std::move(rules)) {}

    /// Throws Error, or UsageError where request.place is "--prompt", that names the place: nothing to begin with, a
    /// token outside of the vocabulary, a prompt that leaves no room in the context, one token without a loss, a chat
    /// that has no template or that its template refuses, more end tokens than a sequence takes.
    PreparedPrompt prepare(const GenerationRequest& request);

  private:
    std::vector<std::int32_t> chat_tokens(std::vector<ChatMessage> messages, const std::string& place);
    std::vector<std::int32_t> encode(const Rendered& rendered) const;
    std::optional<std::int32_t> end_of_turn() const;

    PromptRules rules_;
    std::optional<ChatForm> chat_;
    std::optional<std::int32_t> end_of_turn_;
};

}  // namespace coda
