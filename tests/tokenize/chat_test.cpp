#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "src/io/files.h"
#include "src/tokenize/chat/jinja_words.h"
#include "src/tokenize/chat/render.h"
#include "src/tokenize/chat/template.h"
#include "tests/catch.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;

namespace {

/// tests/tokenize/chat_fixtures.json, or the output of chat_fixtures.py --templates that CODA_CHAT_FIXTURES names.
json fixtures() {
    const char* other = std::getenv("CODA_CHAT_FIXTURES");
    const std::string here = __FILE__;
    return json::parse(read_file(other ? other : here.substr(0, here.rfind('/')) + "/chat_fixtures.json"));
}

std::vector<ChatMessage> messages_of(const json& list) {
    std::vector<ChatMessage> messages;
    for (const json& each : list) messages.push_back({each["role"], each["content"]});
    return messages;
}

std::string template_of(const char* name) {
    const json all = fixtures();
    for (const json& each : all["cases"]) {
        if (each["name"] == name) return each["template"];
    }
    return {};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

ChatTemplate recognised(const std::string& jinja) { return recognise_chat_template(jinja, "t.jinja"); }

}  // namespace

TEST_CASE("conversations are rendered as Jinja renders the templates") {
    const json all = fixtures();
    CHECK(all["cases"].size() >= 12);
    for (const json& each : all["cases"]) {
        INFO(each["name"] << " " << each["messages"]);
        const ChatTemplate known = recognised(each["template"]);
        std::string rendered;
        bool plain = false;
        for (const ChatPiece& piece : render_chat(known, messages_of(each["messages"]), all["today"])) {
            CHECK_FALSE(piece.text.empty());
            CHECK_FALSE((plain && !piece.marker));  // neighbours are encoded as one text
            plain = !piece.marker;
            rendered += piece.text;
        }
        CHECK(rendered == each["rendered"].get<std::string>());
    }
}

TEST_CASE("markers are pieces of their own, and those in a message are not markers") {
    const ChatTemplate known = recognised(template_of("llama3"));
    const std::vector<ChatPiece> pieces = render_chat(known, {{"user", "<|eot_id|>"}}, "");
    std::vector<std::string> markers, plain;
    for (const ChatPiece& piece : pieces) (piece.marker ? markers : plain).push_back(piece.text);
    CHECK(markers == std::vector<std::string>{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                              "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"});
    CHECK(plain == std::vector<std::string>{"user", "\n\n<|eot_id|>", "assistant", "\n\n"});
}

TEST_CASE("templates are recognised by their text") {
    CHECK(name_of(recognised(template_of("llama3"))) == "Llama 3.0");
    CHECK(name_of(recognised(template_of("llama3.1"))) == "Llama 3.1, dated 26 Jul 2024");
    CHECK(name_of(recognised(template_of("llama3.2"))) == "Llama 3.2, dated today");
    CHECK(name_of(recognised(template_of("chatml"))) == "ChatML");
    CHECK_FALSE(recognised(template_of("chatml")).default_system);
    CHECK(recognised(template_of("qwen2")).default_system == "You are a helpful assistant.");
    CHECK(end_of_message(recognised(template_of("qwen2"))) == std::string("<|im_end|>"));
    CHECK(end_of_message(recognised(template_of("llama3.1"))) == std::string("<|eot_id|>"));
    // What is not rendered does not matter: comments, quotes, white space that Jinja takes away.
    CHECK_NOTHROW(
        recognised("{# hello #}\n" + replaced(template_of("chatml"), "'<|im_start|>' +", "\"<|im_start|>\"+")));
    CHECK_FALSE(recognised(replaced(template_of("llama3.1"), "{{- bos_token }}", "")).bos);
}

TEST_CASE("a template that would render another text is refused with the part that makes it so") {
    const auto refused = [](const std::string& jinja, const std::string& says) {
        INFO(jinja);
        CHECK_THROWS_WITH(recognised(jinja), Contains(says) && Contains("t.jinja: ") && Contains("Llama 3.0 to 3.3"));
    };
    refused("{{ '[INST] ' + messages[0]['content'] }}", "Mistral or Llama 2");
    refused("{{ '<start_of_turn>' }}", "Gemma");
    refused("{{ '<|user|>' }}", "Zephyr");
    refused(template_of("chatml") + "{{ '<think>\\n\\n</think>\\n' }}", "Qwen3");
    refused("{{ messages[0].content }}", "the markers of neither");
    refused(replaced(template_of("llama3"), " | trim", ""), "does not trim");
    refused(replaced(template_of("chatml"), "message['content']", "message['content'] | trim"), "it trims");
    refused(replaced(template_of("llama3"), "<|end_header_id|>\n\n", "<|end_header_id|>\n"), "<|end_header_id|>\\x0a");
    refused(replaced(template_of("llama3.1"), "December 2023", "March 2024"), "March 2024");
    refused(replaced(template_of("llama3.1"), "set system_message = \"\"", "set system_message = \"You are x\""),
            "a system message of its own");
    refused(replaced(template_of("llama3.1"), "{{- system_message }}", "{{- 'Be kind. ' + system_message }}"),
            "Be kind");
    refused(replaced(template_of("llama3.1"), "system<|end_header_id|>", "Metadata<|end_header_id|>"), "Metadata");
    refused(replaced(template_of("chatml"), "{% endfor %}", "{{ eos_token }}{% endfor %}"), "eos_token");
    refused("x" + template_of("chatml"), "outside of tags");
    refused(replaced(template_of("qwen2"), "{% endfor %}",
                     "{% if loop.last %}{{ '<|im_start|>system\\nOther.<|im_end|>\\n' }}{% endif %}{% endfor %}"),
            "two system messages");
    CHECK_THROWS_WITH(recognised("{{ 'a"), Contains("t.jinja"));
    CHECK_THROWS_WITH(recognised("{% if x "), Contains("t.jinja"));
    CHECK_THROWS_WITH(recognised("{# x "), Contains("t.jinja"));
    CHECK_THROWS_AS(recognised("{% endif %}" + template_of("chatml")), Error);
    CHECK_THROWS_AS(recognised(""), Error);
}

TEST_CASE("a template of known strings in another order is refused") {
    const auto refused = [](const std::string& jinja) {
        INFO(jinja);
        CHECK_THROWS_WITH(recognised(jinja), Contains("t.jinja: ") && Contains("in another order"));
    };
    const std::string chatml = template_of("chatml"), llama3 = template_of("llama3"), dated = template_of("llama3.1");
    refused(replaced(chatml, "'<|im_end|>' + '\\n'", "'<|im_end|>'"));
    refused(replaced(chatml, "message['role'] + '\\n' + message['content']", "message['role'] + message['content']"));
    refused(replaced(chatml, "message['role'] + '\\n' + message['content']",
                     "message['content'] + '\\n' + message['role']"));
    refused(replaced(chatml, "message['content'] + ", ""));
    const std::string own = "{{ '<|im_start|>system\\nOwn.<|im_end|>\\n' }}";
    refused(replaced(chatml, "{% endfor %}", own + "{% endfor %}"));
    refused(own + "{{ '<|im_start|>assistant\\n' }}");
    refused(replaced(chatml, "{{ '<|im_start|>assistant\\n' }}", ""));
    refused(replaced(chatml, "'<|im_start|>assistant\\n'", "'<|im_start|>user\\n'"));
    refused(replaced(llama3, "{% set content = bos_token + content %}", "{% set content = content + bos_token %}"));
    refused(replaced(llama3, "'<|end_header_id|>\n\n'+ ", ""));
    refused(replaced(dated, "{{- system_message }}\n{{- \"<|eot_id|>\" }}",
                     "{{- \"<|eot_id|>\" }}\n{{- system_message }}"));
}

TEST_CASE("the same text in other expressions is known") {
    const std::string chatml = template_of("chatml");
    CHECK_NOTHROW(
        recognised(replaced(chatml, "+ '<|im_end|>' + '\\n'}}",
                            "}}{% if not loop.last or add_generation_prompt %}{{ '<|im_end|>\\n'}}{% endif %}")));
    CHECK_NOTHROW(recognised(
        replaced(chatml, "message['role'] + '\\n' + message['content']", "message.role + '\\n' }}{{ message.content")));
    // As Qwen2.5's, whose messages with tool calls are put together piece by piece.
    const ChatTemplate qwen = recognised(R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help.' }}
    {%- endif %}
    {{- "\n\n# Tools\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou help.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
)");
    CHECK(qwen.default_system == "You help.");
}

TEST_CASE("the words of a template") {
    std::string words;
    for (const JinjaWord& word :
         jinja_words("a{%- if x['k'] == \"\\n'\" -%}  \n b{{ y | trim }}\n{% endif %}\n z\n", "t")) {
        words += std::to_string(static_cast<int>(word.kind)) + word.text + ";";
    }
    CHECK(words == "6a;0;4if;4x;5[;3k;5];5=;5=;3\n';2;6b;1;4y;5|;4trim;2;6\n;0;4endif;2;6 z;");
}

TEST_CASE("white space before a tag is rendered where the line does not begin with it") {
    const auto outside = [](const std::string& jinja) {
        std::string text;
        for (const JinjaWord& word : jinja_words(jinja, "t")) {
            if (word.kind == JinjaWord::Kind::outside) text += word.text;
        }
        return text;
    };
    CHECK(outside("{{ a }} {% if b %}") == " ");
    CHECK(outside("{% if a %} {% if b %}") == " ");
    CHECK(outside("  {% if a %}\n \t{% if b %}") == "");
    CHECK(outside("{{ a }}\n {% if b %}") == "\n");
    CHECK(outside("{{ a }} {%- if b %}") == "");
    CHECK(outside("{{ a -}} {% if b %}") == "");
    CHECK(outside(" {%+ if a %}") == " ");
    CHECK(outside(" {{ a }}") == " ");
    const std::string chatml = template_of("chatml");
    CHECK_THROWS_WITH(recognised(replaced(chatml, "assistant\\n' }}", "assistant\\n' }} ")),
                      Contains("outside of tags"));
}

TEST_CASE("the date of a chat") {
    const std::string date = chat_date();
    REQUIRE(date.size() == 11);
    CHECK(date.substr(7) >= "2024");
    CHECK((date[2] == ' ' && date[6] == ' '));
}
