#include "src/tokenize/chat/template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/core/error.h"
#include "src/tokenize/chat/interpreter.h"
#include "src/tokenize/chat/parse.h"

namespace coda {

using jinja::Value;

struct ChatTemplate::Parsed {
    std::string where;
    ChatLimits limits;
    jinja::Body body;
    bool has_generation = false;
};

namespace {

bool has_generation(const jinja::Body& body) {
    return std::any_of(body.begin(), body.end(), [](const jinja::Statement& statement) {
        return statement.kind == jinja::Statement::Kind::generation ||
               std::any_of(statement.bodies.begin(), statement.bodies.end(), has_generation);
    });
}

/// A role is one of few words, which cannot spell a token by themselves; templates build markers of it, as
/// "<|" + role + "|>". Any other is a message's text like its content.
bool is_plain_role(const std::string& role) {
    constexpr std::array<std::string_view, 4> kRoles{"system", "user", "assistant", "tool"};
    return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

Value message_value(const ChatMessage& message, std::int32_t index) {
    const jinja::Origin origin{.message = index};
    jinja::Dict dict;
    dict.set(Value::of("role"),
             Value(jinja::OriginText(message.role, is_plain_role(message.role) ? jinja::Origin{} : origin)));
    dict.set(Value::of("content"), Value(jinja::OriginText(message.content, origin)));
    return make_dict(std::move(dict));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view jinja, std::string where, const ChatLimits& limits) {
    auto parsed = std::make_unique<Parsed>();
    parsed->where = std::move(where);
    parsed->limits = limits;
    try {
        parsed->body = jinja::parse(jinja, limits);
    } catch (const Error& error) {
        throw Error(text(parsed->where, ": ", error.what()));
    }
    parsed->has_generation = has_generation(parsed->body);
    parsed_ = std::move(parsed);
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Rendered ChatTemplate::render(const std::vector<ChatMessage>& messages, const ChatContext& context) const {
    std::size_t bytes = 0;
    std::vector<Value> values;
    for (const ChatMessage& message : messages) {
        bytes += message.role.size() + message.content.size();
        values.push_back(message_value(message, static_cast<std::int32_t>(values.size())));
    }
    jinja::Budget budget(parsed_->limits, bytes);
    jinja::Interpreter interpreter(budget, context.now);
    interpreter.define("messages", jinja::make_list(std::move(values)));
    interpreter.define("add_generation_prompt", Value(context.add_generation_prompt));
    interpreter.define("tools", Value());
    interpreter.define("documents", Value());
    for (const auto& [name, token] : context.tokens) interpreter.define(name, Value::of(token));
    jinja::OriginText result;
    try {
        result = interpreter.render(parsed_->body);
    } catch (const Error& error) {
        throw Error(text(parsed_->where, ": ", error.what()));
    }
    Rendered rendered{.text = result.bytes(), .has_generation = parsed_->has_generation};
    std::size_t begin = 0;
    for (const jinja::OriginText::Run& run : result.runs()) {
        const std::int32_t message = run.origin.message;
        rendered.runs.push_back({.begin = begin,
                                 .end = run.end,
                                 .message = message,
                                 .role = message < 0 ? "" : messages[static_cast<std::size_t>(message)].role,
                                 .generation = run.origin.generation});
        begin = run.end;
    }
    return rendered;
}

}  // namespace coda
