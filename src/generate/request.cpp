#include "src/generate/request.h"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/core/error.h"
#include "src/config/json_file.h"
#include "src/config/nearest.h"
#include "src/core/choice_options.h"
#include "src/core/printable.h"

namespace coda {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

const std::vector<std::string> kKeys{"id",   "prompt",      "tokens", "messages", "max_tokens", "seed",
                                     "stop", "temperature", "top_k",  "top_p",    "min_p",      "repetition_penalty"};

/// A value of the line with its place, for messages.
struct Value {
    const json& value;
    std::string where;  // "FILE:LINE: top_k"

    [[noreturn]] void refuse(const char* expected) const {
        std::string found = value.is_structured() ? value.type_name() : value.dump(-1, ' ', true);
        if (found.size() > 60) found = found.substr(0, 60) + "...";
        throw Error(text(where, ": expected ", expected, ", found ", found));
    }
    std::string string() const {
        if (!value.is_string()) refuse("a string");
        return value.get<std::string>();
    }
    std::int64_t integer(std::int64_t least, std::int64_t most, const char* expected) const {
        if (!value.is_number_integer()) refuse(expected);
        const bool fits = value.is_number_unsigned()
                              ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                              : value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
        if (!fits || value.get<std::int64_t>() < least) refuse(expected);
        return value.get<std::int64_t>();
    }
    std::uint64_t seed() const {
        if (!value.is_number_unsigned()) refuse("an integer from 0 to 2^64 - 1");
        return value.get<std::uint64_t>();
    }
    float number() const {
        if (!value.is_number()) refuse("a number");
        return value.get<float>();
    }
    const json& list(const char* expected) const {
        if (!value.is_array()) refuse(expected);
        return value;
    }
    Value element(std::size_t i) const { return {value[i], text(where, "[", i, "]")}; }
};

json read_id(const Value& value) {
    if (!value.value.is_string() && !value.value.is_number_integer()) value.refuse("a string or an integer");
    return value.value;
}

std::vector<std::int32_t> read_tokens(const Value& value) {
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < value.list("a list of token ids").size(); ++i) {
        tokens.push_back(static_cast<std::int32_t>(value.element(i).integer(0, kMaxTokens, "a token id")));
    }
    require(!tokens.empty(), value.where, ": there is no token; give at least one");
    return tokens;
}

/// A string, or a list of them.
std::vector<std::string> read_stop(const Value& value) {
    std::vector<std::string> stop;
    if (value.value.is_string()) {
        stop.push_back(value.string());
    } else {
        for (std::size_t i = 0; i < value.list("a string or a list of strings").size(); ++i) {
            stop.push_back(value.element(i).string());
        }
    }
    for (const std::string& each : stop) require(!each.empty(), value.where, ": an empty text would end every text");
    return stop;
}

ChatMessage read_message(const Value& value) {
    if (!value.value.is_object()) value.refuse("an object {\"role\", \"content\"}");
    for (const auto& [key, unused] : value.value.items()) {
        require(key == "role" || key == "content", value.where, ": unknown key \"", printable(key, ""),
                "\"; a message has role and content");
    }
    const auto get = [&](const char* key) {
        const auto found = value.value.find(key);
        require(found != value.value.end(), value.where, ": there is no ", key);
        return Value{*found, text(value.where, ".", key)}.string();
    };
    ChatMessage message{.role = get("role"), .content = get("content")};
    require(message.role == "system" || message.role == "user" || message.role == "assistant", value.where,
            ".role: expected system, user or assistant, found ", json(message.role).dump(-1, ' ', true));
    return message;
}

std::vector<ChatMessage> read_messages(const Value& value) {
    std::vector<ChatMessage> messages;
    for (std::size_t i = 0; i < value.list("a list of messages").size(); ++i) {
        messages.push_back(read_message(value.element(i)));
    }
    require(!messages.empty(), value.where, ": there is no message; give at least one");
    return messages;
}

void read_key(const std::string& key, const Value& value, GenerationRequest& request) {
    if (key == "id") {
        request.id = read_id(value);
    } else if (key == "prompt") {
        request.prompt = value.string();
    } else if (key == "tokens") {
        request.tokens = read_tokens(value);
    } else if (key == "messages") {
        request.messages = read_messages(value);
    } else if (key == "max_tokens") {
        request.max_tokens = value.integer(1, kMaxTokens, "an integer from 1 to 2147483647");
    } else if (key == "seed") {
        request.choice.seed = value.seed();
    } else if (key == "stop") {
        request.stop = read_stop(value);
    } else if (key == "temperature") {
        request.choice.temperature = value.number();
    } else if (key == "top_k") {
        request.choice.top_k = static_cast<std::int32_t>(value.integer(0, kMaxTokens, "an integer >= 0"));
    } else if (key == "top_p") {
        request.choice.top_p = value.number();
    } else if (key == "min_p") {
        request.choice.min_p = value.number();
    } else {
        request.choice.repetition_penalty = value.number();
    }
}

}  // namespace

GenerationRequest parse_request(std::string_view line, const std::string& file, std::int64_t number,
                                const GenerationDefaults& defaults) {
    const std::string place = text(file, ":", number);
    const json object = parse_json_text(std::string(line), place);
    require(object.is_object(), place, ": expected a JSON object, found ", object.type_name());
    GenerationRequest request{.id = number,
                              .max_tokens = defaults.max_tokens,
                              .choice = defaults.choice,
                              .stop = defaults.stop,
                              .place = place};
    for (const auto& [key, value] : object.items()) {
        const bool known = std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
        require(known, place, ": unknown key \"", printable(key, ""), "\"; the nearest known one is ",
                nearest(key, kKeys));
        read_key(key, {value, text(place, ": ", key)}, request);
    }
    const int prompts =
        (request.prompt ? 1 : 0) + (request.tokens.empty() ? 0 : 1) + (request.messages.empty() ? 0 : 1);
    require(prompts > 0, place, ": there is no prompt; give one of prompt, tokens and messages");
    require(prompts == 1, place, ": there are several prompts; give one of prompt, tokens and messages");
    if (const auto problem = choice_problem(request.choice)) {
        throw Error(text(place, ": ", problem->option, ": ", problem->text));
    }
    return request;
}

const char* name_of(Finish finish) {
    constexpr std::array kNames{"stop", "length", "cancelled"};
    return kNames[static_cast<std::size_t>(finish)];
}

std::string answer_line(const GenerationAnswer& answer) {
    nlohmann::ordered_json line;
    line["id"] = answer.id;
    line["text"] = answer.text;
    line["tokens"] = answer.tokens;
    line["finish"] = name_of(answer.finish);
    line["prompt_tokens"] = answer.prompt_tokens;
    line["ms"] = std::round(answer.ms * 1000) / 1000;
    return line.dump(-1, ' ', true) + "\n";
}

}  // namespace coda
