// A conversation as the text of a chat template: markers, which become special tokens, and plain text between them,
// which never does.
#pragma once

#include <string>
#include <vector>

#include "src/tokenize/chat/template.h"

namespace coda {

struct ChatMessage {
    std::string role;  // "system", "user" or "assistant"
    std::string content;
};

struct ChatPiece {
    bool marker = false;  // a special token's text
    std::string text;     // not empty; two neighbours are not both plain
};

/// The conversation and the header of the answer: put together, what Jinja makes of the template with
/// add_generation_prompt. `today`: as "26 Jul 2024", for a template that shows it.
std::vector<ChatPiece> render_chat(const ChatTemplate& known, const std::vector<ChatMessage>& messages,
                                   const std::string& today);

/// The local date as the templates have it, "26 Jul 2024".
std::string chat_date();

}  // namespace coda
