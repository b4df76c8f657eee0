#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "src/io/files.h"
#include "src/tokenize/chat/template.h"
#include "tests/catch.h"
#include "tests/source_folder.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;

namespace {

/// tests/tokenize/chat_fixtures.json, or a file like it that CODA_CHAT_FIXTURES names.
json fixtures() {
    const char* other = std::getenv("CODA_CHAT_FIXTURES");
    return json::parse(
        read_file(other ? std::filesystem::path(other) : test::source_folder() / "tests/tokenize/chat_fixtures.json"));
}

std::vector<ChatMessage> messages_of(const json& list) {
    std::vector<ChatMessage> messages;
    for (const json& each : list) messages.push_back({each["role"], each["content"]});
    return messages;
}

Rendered rendered(const std::string& jinja, const std::vector<ChatMessage>& messages = {{"user", "Hello"}},
                  const ChatLimits& limits = {}) {
    return ChatTemplate(jinja, "t.jinja", limits)
        .render(messages, {.tokens = {{"eos_token", "</s>"}}, .now = chat_clock("05 Mar 2027")});
}

/// The runs as "text/message", with "g" after it within {% generation %}.
std::vector<std::string> runs_of(const Rendered& rendered) {
    std::vector<std::string> runs;
    for (const RenderedRun& run : rendered.runs) {
        runs.push_back(rendered.text.substr(run.begin, run.end - run.begin) + "/" + std::to_string(run.message) +
                       (run.generation ? "g" : ""));
    }
    return runs;
}

using Runs = std::vector<std::string>;

}  // namespace

TEST_CASE("conversations are rendered as jinja2 renders the templates") {
    const json all = fixtures();
    CHECK(all["cases"].size() >= (std::getenv("CODA_CHAT_FIXTURES") ? 1 : 45));
    ChatContext context{.now = chat_clock(all["date"])};
    for (const auto& [name, token] : all["tokens"].items()) context.tokens.emplace_back(name, token);
    for (const json& each : all["cases"]) {
        for (std::size_t i = 0; i < all["messages"].size(); ++i) {
            INFO(each["name"] << ", conversation " << i << ": " << each["template"]);
            context.add_generation_prompt = i % 2 == 0;
            const json& expected = each["rendered"][i];
            json found;
            try {
                const ChatTemplate jinja(each["template"].get<std::string>(), "t.jinja");
                found = {{"text", jinja.render(messages_of(all["messages"][i]), context).text}};
            } catch (const Error& error) {
                found = {{"error", error.what()}};
            }
            INFO(found << " for " << expected);
            CHECK(found.contains("text") == expected.contains("text"));
            if (expected.contains("text")) CHECK(found["text"] == expected["text"]);
        }
    }
}

TEST_CASE("text knows its origin, whatever is done to it") {
    const std::vector<ChatMessage> messages{{"user", " a,b "}, {"assistant", "Cd"}};
    const auto runs = [&](const std::string& jinja) { return runs_of(rendered(jinja, messages)); };
    const std::string first = "messages[0].content", second = "messages[1].content";
    CHECK(runs("<{{ " + first + " }}>") == Runs{"</-1", " a,b /0", ">/-1"});
    CHECK(runs("{{ '<' + " + first + "|trim + '>' ~ " + second + " }}") == Runs{"</-1", "a,b/0", ">/-1", "Cd/1"});
    CHECK(runs("{{ " + first + ".split(',') | join('+') }}") == Runs{" a/0", "+/-1", "b /0"});
    CHECK(runs("{{ (" + first + " + 'x')[2:] }}") == Runs{",b /0", "x/-1"});
    CHECK(runs("{{ ('x' + " + second + ")[::-1] }}") == Runs{"dC/1", "x/-1"});
    CHECK(runs("{{ " + first + ".replace(',', '+') }}") == Runs{" a/0", "+/-1", "b /0"});
    CHECK(runs("{{ 'x,y'.replace(',', " + second + ") }}") == Runs{"x/-1", "Cd/1", "y/-1"});
    CHECK(runs("{{ ('x' + " + second + ") | upper }}{{ " + second + ".lower() | title }}") == Runs{"X/-1", "CDCd/1"});
    CHECK(runs("{{ [" + second + "] | tojson }}{{ [" + second + "] }}") ==
          Runs{"[\"/-1", "Cd/1", "\"]['/-1", "Cd/1", "']/-1"});
    CHECK(runs("{% set x %}({{ " + second + " }}){% endset %}{% macro m(v) %}{{ v }}!{% endmacro %}{{ m(x) }}") ==
          Runs{"(/-1", "Cd/1", ")!/-1"});
    CHECK(runs("{% for c in " + second + " %}{{ c }}{% endfor %}{{ messages[1].role }}") ==
          Runs{"Cd/1", "assistant/-1"});
    CHECK(rendered("{{ " + second + " }}", messages).runs[0].role == "assistant");
    // A role that is not one of the known words is a message's text.
    CHECK(runs_of(rendered("{{ '<|' + messages[0].role + '|>' }}", {{"im_end", ""}})) ==
          Runs{"<|/-1", "im_end/0", "|>/-1"});
}

TEST_CASE("generation marks what is rendered within it") {
    const std::string jinja =
        "{% set s = 's' %}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
        "{{ s }}{{ m.content }}{% set s = 't' %}{% endgeneration %}{% else %}{{ m.content }}"
        "{% endif %}{{ s }}{% endfor %}";
    const Rendered both = rendered(jinja, {{"user", "U"}, {"assistant", "A"}});
    CHECK(both.has_generation);
    CHECK(runs_of(both) == Runs{"U/0", "s/-1", "s/-1g", "A/1g", "s/-1"});
    CHECK_FALSE(rendered("a").has_generation);
    CHECK(rendered("{% if false %}{% generation %}{% endgeneration %}{% endif %}a").has_generation);
}

TEST_CASE("errors name file, line and what it was") {
    const auto refused = [](const std::string& jinja, const std::string& says) {
        INFO(jinja);
        CHECK_THROWS_WITH(rendered(jinja), Contains("t.jinja: line ") && Contains(says));
    };
    refused("a\n{{ raise_exception('Not so.') }}", "line 2: the template refuses: Not so.");
    refused("\n\n{{ missing.x }}", "line 3: \"missing\" is undefined");
    refused("{{ 1 | abs }}", "the filter abs is not supported");
    refused("{{ 1 is callable }}", "the test callable is not supported");
    refused("{{ 'a'.zfill(3) }}", "the method zfill of a text is not supported");
    refused("{{ [].append(1) }}", "the method append of a list is not supported");
    refused("{{ cycler(1) }}", "the function cycler() is not supported");
    refused("\n{% include 'x' %}", "line 2: the tag \"include\" is not supported");
    refused("{{ 2 ** 3 }}", "the operator ** is not supported");
    refused("{{ 9223372036854775807 + 1 }}", "beyond 64 bits");
    refused("{{ 1 // 0 }}", "division by zero");
    refused("{% set messages.x = 1 %}", "namespace()");
    refused("{{ 'a' | join(1, 2, 3) }}", "the filter join takes at most 2");
    refused("{{ [1] | tojson(colour=1) }}", "no parameter colour");
    refused("{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1) }}", "takes at most 0 arguments");
    refused("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m() }}", "\"kwargs\" of a macro is not supported");
    // What is not Jinja is an error before anything is rendered.
    for (const char* jinja : {"{{ 'a",
                              "{% if x ",
                              "{# x ",
                              "{% endif %}",
                              "{% if x %}",
                              "{% for x %}{% endfor %}",
                              "{{ }}",
                              "{{ (1 }}",
                              "{{ 1) }}",
                              "{% wibble %}",
                              "{{ 1 2 }}",
                              "{{ a. }}",
                              "{{ a ! b }}",
                              "{% raw %}",
                              "{% break %}",
                              "{{ '\\xZZ' }}",
                              "{{ 99999999999999999999 }}",
                              "\xff",
                              "{% macro m(a=1, b) %}{% endmacro %}",
                              "{{ f(a=1, 2) }}",
                              "{% set x %}"}) {
        INFO(jinja);
        CHECK_THROWS_WITH(ChatTemplate(jinja, "t.jinja"), Contains("t.jinja: "));
    }
}

TEST_CASE("a template that would take too much ends in an error") {
    const auto refused = [](const std::string& jinja, const std::string& says) {
        INFO(jinja.substr(0, 100));
        CHECK_THROWS_WITH(rendered(jinja, {{"user", "a"}}, {.nodes = 1'000'000}), Contains(says));
    };
    const auto repeated = [](const std::string& part, int times) {
        std::string all;
        for (int i = 0; i < times; ++i) all += part;
        return all;
    };
    refused(std::string((1 << 20) + 1, 'a'), "more than 1048576 bytes");
    refused(repeated("{% if true %}", 101) + repeated("{% endif %}", 101), "nested more than 100 deep");
    refused("{{ " + repeated("(", 101) + "1" + repeated(")", 101) + " }}", "nested more than 100 deep");
    refused("{{ " + repeated("not ", 101) + "1 }}", "nested more than 100 deep");
    refused("{{ a" + repeated("[0]", 102) + " }}", "in a row");
    refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "more than 100 deep");
    refused("{% for i in range(2000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}", "more than 1000000 nodes");
    refused("{{ range(100001) }}", "more than 100000 elements");
    refused("{{ 'a' * 20000000 }}", "a text of more than");
    refused("{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "a text of more");
    refused("{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}",
            "nested more than 100");
    refused("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
            "parts");
    refused("{% set ns = namespace(d={}) %}{% for i in range(200) %}{% set ns.d = {'a': ns.d.get} %}{% endfor %}",
            "nested more");
    refused("{{ x" + repeated("|upper", 102) + " }}", "in a row");
    refused("{{ 1" + repeated(" if 1", 102) + " }}", "in a row");
    refused("{{ 1" + repeated(" is a(1)", 102) + " }}", "in a row");
    refused("{{ ['x']|map(attribute='0.' * 100 ~ '0')|list }}", "more than 100 steps");
    refused("{{ (['x'] * 20000)|map(attribute='0.0.0.0.0.0.0.0.0.0' ~ '.0' * 50)|list }}", "more than 1000000 nodes");
    refused("{% set d = {" + repeated("'a': 1, ", 1) +
                "} %}{% for i in range(30000) %}{% macro m() %}{% endmacro %}"
                "{% endfor %}",
            "more than 1000000 nodes");
    // Two dicts of 300 keys: 3000 comparisons cost 3000 times 300 * 300 / 8 and more.
    const auto dict = [](const std::string& last) {
        std::string all = "{";
        for (int i = 0; i < 300; ++i) all += std::to_string(i) + ": 1, ";
        return all + last + "}";
    };
    refused("{% set a = " + dict("'x': 1") + " %}{% set b = " + dict("'x': 2") + " %}" +
                repeated("{{ a == b }}{{ [a] == [b] }}{{ a in [b] }}", 100),
            "more than 1000000 nodes");
    refused("{{ strftime_now(messages[0].content) }}", "is given a part of a message");
    CHECK(rendered("{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns] %}a").text == "a");
    CHECK(rendered("{{ " + repeated("'a' + ", 1000) + "'a' }}").text.size() == 1001);
}

TEST_CASE("today is the local day, or the one that is given") {
    CHECK(chat_clock("")("%d %b %Y").size() == 11);
    CHECK(chat_clock("26 Jul 2024")("%Y-%m-%d %A") == "2024-07-26 Friday");
    CHECK(chat_clock("")("").empty());
    CHECK(chat_clock("26 Jul 2024")("%8190Y").size() == 8190);
    CHECK_THROWS_WITH(chat_clock("26 Jul 2024")("%8191Y"), Contains("strftime_now()") && Contains("8190 bytes"));
    CHECK_THROWS_WITH(chat_clock("tomorrow"), Contains("--date") && Contains("tomorrow"));
}
