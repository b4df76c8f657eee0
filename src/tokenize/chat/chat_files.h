// The chat template of a model's folder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "src/tokenize/chat/template.h"

namespace coda {

/// How a conversation becomes a text.
struct ChatForm {
    ChatTemplate jinja;
    ChatContext context{};
};

/// chat_template.jinja, else chat_template of tokenizer_config.json; nothing where neither is there. Its tokens
/// (bos_token, eos_token and so on) come from tokenizer_config.json, else from special_tokens_map.json. Throws Error
/// naming the file for what is no template.
std::optional<ChatForm> read_chat_form(const std::filesystem::path& folder,
                                       std::function<std::string(const std::string& format)> now);

}  // namespace coda
