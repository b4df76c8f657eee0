// Chat templates: a conversation as the text that a model expects, by an interpreter of the part of Jinja that such
// templates use.
//
//   text, comments, white space control (trim_blocks and lstrip_blocks, as transformers has them), raw
//   for (unpacking, if, else, break, continue, loop), if, set (also of namespaces and of blocks), macro, generation
//   literals, lists, dicts, tuples, attributes, indices, slices, + - * / // % ~, comparisons, in, and, or, not, inline
//   if, the filters of filters.cpp and list_filters.cpp, the tests of conditions.cpp, the methods of methods.cpp
//   namespace, raise_exception, range, strftime_now
//
// Its values behave as Python's. Text knows where it is from: the template, or a message's content. Nothing of a
// template reaches files, other programs or the memory of this one, and ChatLimits end those that would take too long.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tokenize/chat/budget.h"

namespace coda {

struct ChatMessage {
    std::string role;  // "system", "user" or "assistant"
    std::string content;
    bool operator==(const ChatMessage&) const = default;
};

/// A stretch of a rendered conversation.
struct RenderedRun {
    std::size_t begin = 0, end = 0;  // bytes
    std::int32_t message = -1;       // whose content it is from, -1: the template's own
    std::string role{};              // of this message
    bool generation = false;         // within {% generation %}
};

struct Rendered {
    std::string text;                 // valid UTF-8
    std::vector<RenderedRun> runs{};  // cover the text, in order
    bool has_generation = false;      // the template has a block {% generation %}, reached or not
};

/// What a template sees apart from the messages.
struct ChatContext {
    std::vector<std::pair<std::string, std::string>> tokens{};  // "bos_token" and so on
    bool add_generation_prompt = true;
    std::function<std::string(const std::string& format)> now{};  // strftime of today
};

class ChatTemplate {
  public:
    /// Throws Error "WHERE: line N: ..." for what is not Jinja or beyond the limits.
    ChatTemplate(std::string_view jinja, std::string where, const ChatLimits& limits = {});
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    /// Throws Error "WHERE: line N: ..." for a conversation that the template refuses, an expression that fails as it
    /// does in Python, what is not supported, and a limit that is passed.
    Rendered render(const std::vector<ChatMessage>& messages, const ChatContext& context) const;

  private:
    struct Parsed;
    std::unique_ptr<const Parsed> parsed_;
};

/// What strftime_now() gives: the local time, or the day that `date` names, as "26 Jul 2024". Throws Error for another
/// form of date.
std::function<std::string(const std::string& format)> chat_clock(const std::string& date);

}  // namespace coda
