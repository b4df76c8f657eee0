#include "src/generate/request.h"

#include <string>

#include "kernels/core/error.h"
#include "tests/catch.h"

using namespace coda;
using Catch::Contains;

namespace {

GenerationRequest parse(const std::string& line) {
    return parse_request(line, "p.jsonl", 7, {.max_tokens = 20, .choice = {.top_k = 5, .seed = 3}, .stop = {"X"}});
}

}  // namespace

TEST_CASE("a request has what its line says, and the defaults") {
    const GenerationRequest least = parse(R"({"prompt": "a\u0000b"})");
    CHECK(least.id == 7);
    CHECK(least.prompt == std::string("a\0b", 3));
    CHECK(least.max_tokens == 20);
    CHECK(least.choice == ChoiceOptions{.top_k = 5, .seed = 3});
    CHECK(least.stop == std::vector<std::string>{"X"});
    CHECK(least.place == "p.jsonl:7");

    const GenerationRequest all = parse(
        R"({"id": "q", "tokens": [1, 2147483647], "max_tokens": 1, "seed": 18446744073709551615, "temperature": 0,)"
        R"( "top_k": 0, "top_p": 0.5, "min_p": 0.25, "repetition_penalty": 1.5, "stop": ["\n", "é"]})");
    CHECK(all.id == "q");
    CHECK(all.tokens == std::vector<std::int32_t>{1, 2147483647});
    CHECK(all.max_tokens == 1);
    CHECK(all.choice == ChoiceOptions{.temperature = 0,
                                      .top_k = 0,
                                      .top_p = 0.5,
                                      .min_p = 0.25,
                                      .repetition_penalty = 1.5,
                                      .seed = 18446744073709551615U});
    CHECK(all.stop == std::vector<std::string>{"\n", "é"});
    CHECK_FALSE(all.prompt);

    const GenerationRequest chat =
        parse(R"({"messages": [{"role": "system", "content": "s"}, {"content": "", "role": "user"}], "stop": "end"})");
    REQUIRE(chat.messages.size() == 2);
    CHECK(chat.messages[0].role == "system");
    CHECK(chat.messages[1].content.empty());
    CHECK(chat.stop == std::vector<std::string>{"end"});
    CHECK(parse(R"({"prompt": "", "stop": []})").stop.empty());
}

TEST_CASE("a bad request is refused with file, line and key") {
    const auto refused = [](const std::string& line, const std::string& says) {
        INFO(line);
        CHECK_THROWS_WITH(parse(line), Contains("p.jsonl:7") && Contains(says));
    };
    refused("", "p.jsonl:7");
    refused("{\"prompt\": \"a\"", "p.jsonl:7:1:");
    refused("{\"prompt\": \"\xff\"}", "p.jsonl:7:1:");
    refused(R"({"prompt": "\ud800"})", "p.jsonl:7:1:");
    refused("[]", "expected a JSON object, found array");
    refused("{}", "there is no prompt");
    refused(R"({"prompt": "a", "tokens": [1]})", "several prompts");
    refused(R"({"prompt": "a", "messages": [{"role": "user", "content": ""}]})", "several prompts");
    refused(R"({"prompt": "a", "promtp": "b"})", "unknown key \"promtp\"; the nearest known one is prompt");
    refused(R"({"prompt": "a", "prompt": "b"})", "given twice");
    refused(R"({"prompt": 1})", "prompt: expected a string, found 1");
    refused(R"({"prompt": null})", "prompt: expected a string, found null");
    refused(R"({"tokens": "1"})", "tokens: expected a list of token ids");
    refused(R"({"tokens": []})", "tokens: there is no token");
    refused(R"({"tokens": [1, -1]})", "tokens[1]: expected a token id, found -1");
    refused(R"({"tokens": [2147483648]})", "tokens[0]: expected a token id");
    refused(R"({"tokens": [1.0]})", "tokens[0]: expected a token id");
    refused(R"({"messages": []})", "messages: there is no message");
    refused(R"({"messages": [3]})", "messages[0]: expected an object");
    refused(R"({"messages": [{"role": "user"}]})", "messages[0]: there is no content");
    refused(R"({"messages": [{"role": "tool", "content": ""}]})", "messages[0].role: expected system");
    refused(R"({"messages": [{"role": "user", "content": "", "name": "x"}]})", "unknown key \"name\"");
    refused(R"({"messages": [{"role": "user", "content": [1]}]})",
            "messages[0].content: expected a string, found array");
    refused(R"({"prompt": "a", "id": 1.5})", "id: expected a string or an integer");
    refused(R"({"prompt": "a", "max_tokens": 0})", "max_tokens: expected an integer from 1");
    refused(R"({"prompt": "a", "max_tokens": 1e3})", "max_tokens: expected an integer");
    refused(R"({"prompt": "a", "max_tokens": 18446744073709551615})", "max_tokens: expected an integer");
    refused(R"({"prompt": "a", "seed": -1})", "seed: expected an integer from 0");
    refused(R"({"prompt": "a", "temperature": "hot"})", "temperature: expected a number");
    refused(R"({"prompt": "a", "temperature": -1})", "temperature: is -1");
    refused(R"({"prompt": "a", "temperature": 1e300})", "temperature: is inf");
    refused(R"({"prompt": "a", "top_k": -1})", "top_k: expected an integer >= 0");
    refused(R"({"prompt": "a", "top_k": 2.5})", "top_k: expected an integer >= 0");
    refused(R"({"prompt": "a", "top_p": 1.5})", "top_p: is 1.5");
    refused(R"({"prompt": "a", "min_p": -0.5})", "min_p: is -0.5");
    refused(R"({"prompt": "a", "repetition_penalty": 0})", "repetition_penalty: is 0");
    refused(R"({"prompt": "a", "stop": 3})", "stop: expected a string or a list of strings");
    refused(R"({"prompt": "a", "stop": ["x", ""]})", "an empty text would end every text");
}

TEST_CASE("an answer is one line of ASCII") {
    GenerationAnswer answer{.id = "a\n", .text = "é\u2028\n\"\x01", .tokens = {3, 4}, .finish = Finish::stop};
    answer.prompt_tokens = 2;
    answer.ms = 12.34567;
    const std::string line = answer_line(answer);
    CHECK(line ==
          "{\"id\":\"a\\n\",\"text\":\"\\u00e9\\u2028\\n\\\"\\u0001\",\"tokens\":[3,4],\"finish\":\"stop\","
          "\"prompt_tokens\":2,\"ms\":12.346}\n");
    CHECK(name_of(Finish::length) == std::string("length"));
    CHECK(name_of(Finish::cancelled) == std::string("cancelled"));
}
