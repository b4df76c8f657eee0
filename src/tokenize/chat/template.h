// Chat templates, recognised by their text. There is no interpreter of Jinja here: a template is one of the families
// below, whose rendering is written out in render.h, or it is refused with what makes it another.
//
//   llama3       Llama 3.0: a header with the role before each message, <|eot_id|> after it
//   llama3_date  Llama 3.1, 3.2 and 3.3: the same, and always a system message that begins with "Cutting Knowledge
//                Date" and "Today Date"
//   chatml       <|im_start|>role ... <|im_end|>, with the system message that Qwen2, Qwen2.5 or SmolLM2 put first
//   where
//                the conversation has none, or without
//
// The template's strings and names, and the order in which its expressions show them, are compared with the family's.
// Comments, quotes and white space that is not rendered do not matter. Parts that only a conversation with tools
// reaches are skipped, for there are no tools here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coda {

enum class ChatFamily : std::uint8_t { llama3, llama3_date, chatml };

struct ChatTemplate {
    ChatFamily family = ChatFamily::chatml;
    bool bos = false;                             // llama3, llama3_date: it begins with <|begin_of_text|>
    std::optional<std::string> default_system{};  // chatml: where the conversation begins with no system message
    std::string date{};                           // llama3_date: the one it shows; empty for today's
};

/// Throws Error "WHERE: ..." that names what the template looks like, or the string or name that its family lacks.
ChatTemplate recognise_chat_template(std::string_view jinja, const std::string& where);

/// "Llama 3.0", "Llama 3.1, dated 26 Jul 2024", "Llama 3.2, dated today", "ChatML".
std::string name_of(const ChatTemplate& known);

/// The token that ends a message: "<|eot_id|>" or "<|im_end|>".
const char* end_of_message(const ChatTemplate& known);

}  // namespace coda
