// A line of fine-tuning data.
//
//   {"messages": [{"role": "user", "content": "..."}, ...]}             a conversation
//   {"conversations": [{"from": "human", "value": "..."}, ...]}         the same as ShareGPT has it: human or user; gpt
//                                                                       or assistant; system
//   {"prompt": "...", "completion": "..."}                              two texts, or two lists of messages
//   {"text": "..."}                                                     a text, all of which counts
//
// Other keys are passed over.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenize/chat/template.h"

namespace coda {

struct Conversation {
    std::vector<ChatMessage> messages{};  // rendered by the chat template; empty where it is a text
    std::size_t prompt_messages = 0;      // the first of them that never count
    std::string prompt{}, text{};         // without messages: what does not count, and what follows and counts

    bool is_chat() const { return !messages.empty(); }
    bool operator==(const Conversation&) const = default;
};

/// Throws Error "PLACE: ..." that names the key for: no JSON object, none of the keys above, a wrong type, a role that
/// is not system, user or assistant, tool calls, and no messages.
Conversation conversation_of(const nlohmann::json& line, const std::string& place);

}  // namespace coda
