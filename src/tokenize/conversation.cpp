#include "src/tokenize/conversation.h"

#include <nlohmann/json.hpp>

#include "kernels/core/error.h"

namespace coda {

namespace {

using nlohmann::json;

std::string text_at(const json& object, const char* key, const std::string& place) {
    const auto found = object.find(key);
    require(found != object.end(), place, ": no \"", key, "\"");
    require(found->is_string(), place, ": \"", key, "\" is not a string");
    return found->get<std::string>();
}

std::string known_role(const std::string& role, const std::string& place) {
    if (role == "system" || role == "user" || role == "assistant") return role;
    if (role == "human") return "user";
    if (role == "gpt") return "assistant";
    throw Error(text(place, ": the role \"", role, "\" is none of system, user (human) and assistant (gpt)"));
}

/// Appends the messages of a list, whose elements have the keys `role` and `content`.
void add_messages(const json& list, const std::string& place, const char* role, const char* content,
                  std::vector<ChatMessage>& out) {
    require(list.is_array() && !list.empty(), place, ": a list of messages is expected");
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string at = text(place, "[", i, "]");
        require(list[i].is_object(), at, ": an object with \"", role, "\" and \"", content, "\" is expected");
        const auto calls = list[i].find("tool_calls");
        require(calls == list[i].end() || calls->is_null(), at, ": tool_calls are not supported");
        out.push_back({known_role(text_at(list[i], role, at), at), text_at(list[i], content, at)});
    }
}

}  // namespace

Conversation conversation_of(const json& object, const std::string& place) {
    require(object.is_object(), place, ": a JSON object is expected on every line");
    const auto at = [&](const char* key) { return text(place, ": ", key); };
    Conversation result;
    if (object.contains("messages")) {
        add_messages(object["messages"], at("messages"), "role", "content", result.messages);
    } else if (object.contains("conversations")) {
        add_messages(object["conversations"], at("conversations"), "from", "value", result.messages);
    } else if (object.contains("prompt") && object["prompt"].is_array()) {
        require(object.contains("completion"), place, ": \"prompt\" has no \"completion\"");
        add_messages(object["prompt"], at("prompt"), "role", "content", result.messages);
        result.prompt_messages = result.messages.size();
        add_messages(object["completion"], at("completion"), "role", "content", result.messages);
    } else if (object.contains("prompt")) {
        result.prompt = text_at(object, "prompt", place);
        result.text = text_at(object, "completion", place);
    } else {
        require(object.contains("text"), place,
                ": none of \"messages\", \"conversations\", \"prompt\" with \"completion\", and \"text\"");
        result.text = text_at(object, "text", place);
    }
    return result;
}

}  // namespace coda
