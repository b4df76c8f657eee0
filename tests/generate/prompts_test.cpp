#include "src/generate/program/prompts.h"

#include <string>
#include <vector>

#include "src/core/errors.h"
#include "tests/catch.h"
#include "tests/generate/fakes.h"

using namespace coda;
using Catch::Contains;

namespace {

using Tokens = std::vector<std::int32_t>;

ListCodec codec_of_chat() {
    return ListCodec({"?", "a", "b", "<|im_start|>", "<|im_end|>", "u", "\n", "s", "<|begin_of_text|>"});
}

ChatForm chat_of(const std::string& jinja) { return {ChatTemplate(jinja, "t.jinja"), {.now = chat_clock("")}}; }

PromptRules rules_of(TextCodec& codec) {
    return {.codec = codec, .vocab = 9, .context = 20, .start = {8}, .bos = 8, .end_tokens = {0}, .read_chat = [] {
                return chat_of(
                    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
            }};
}

GenerationRequest prompt(const std::string& text) { return {.prompt = text, .place = "p:1"}; }

}  // namespace

TEST_CASE("a prompt begins as a text does, once, and an empty one at least with the bos token") {
    ListCodec codec = codec_of_chat();
    PromptReader reader(rules_of(codec));
    CHECK(reader.prepare(prompt("ab")).tokens == Tokens{8, 1, 2});
    CHECK(reader.prepare(prompt("<|begin_of_text|>ab")).tokens == Tokens{8, 1, 2});
    CHECK(reader.prepare(prompt("")).tokens == Tokens{8});
    CHECK(reader.prepare({.tokens = {1, 2}, .place = "p:1"}).tokens == Tokens{1, 2});  // tokens are taken unchanged
    CHECK(reader.prepare(prompt("a")).end_tokens == Tokens{0});
    PromptRules without = rules_of(codec);
    without.start.clear();
    CHECK(PromptReader(without).prepare(prompt("ab")).tokens == Tokens{1, 2});
    CHECK(PromptReader(without).prepare(prompt("")).tokens == Tokens{8});
}

TEST_CASE("a chat has special tokens only for its markers") {
    ListCodec codec = codec_of_chat();
    PromptRules rules = rules_of(codec);
    rules.context = 1000;
    PromptReader reader(rules);
    const PreparedPrompt chat = reader.prepare({.messages = {{"u", "a<|im_end|>b"}}, .place = "p:1"});
    Tokens expected{3, 5, 6, 1};
    expected.insert(expected.end(), std::string("<|im_end|>").size(), 0);
    expected.insert(expected.end(), {2, 4});
    CHECK(Tokens(chat.tokens.begin(), chat.tokens.begin() + static_cast<std::ptrdiff_t>(expected.size())) == expected);
    CHECK(chat.end_tokens == Tokens{0, 4});

    rules.chat = true;
    rules.system = "b";
    PromptReader with_system(rules);
    const PreparedPrompt both = with_system.prepare(prompt("a"));
    const PreparedPrompt spelled = with_system.prepare({.messages = {{"system", "b"}, {"user", "a"}}, .place = "p:1"});
    CHECK(both.tokens == spelled.tokens);
    const PreparedPrompt own = with_system.prepare({.messages = {{"system", "s"}, {"user", "a"}}, .place = "p:1"});
    CHECK(own.tokens != both.tokens);
    CHECK(own.tokens.size() == both.tokens.size());
}

TEST_CASE("the token that ends a turn is the one that the template puts after an answer") {
    ListCodec codec = codec_of_chat();
    PromptRules rules = rules_of(codec);
    const auto ends = [&](const std::string& jinja) {
        rules.read_chat = [&] { return chat_of(jinja); };
        return PromptReader(rules).prepare({.messages = {{"user", "a"}}, .place = "p:1"}).end_tokens;
    };
    CHECK(ends("{% for m in messages %}<|im_start|>{{ m.content }}{% if m.role == 'assistant' %}\n<|im_end|>{% endif %}"
               "{% endfor %}") == Tokens{0, 4});
    CHECK(ends("<|im_start|>{% for m in messages %}{{ m.content }}a{% endfor %}") == Tokens{0});
    CHECK(ends("{% if messages|length > 1 %}{{ raise_exception('one') }}{% endif %}a<|im_end|>") == Tokens{0});
    CHECK(ends("{{ messages[0].content }}<|im_end|>") == Tokens{0});
}

TEST_CASE("a prompt that cannot be is refused with its place") {
    ListCodec codec = codec_of_chat();
    PromptRules rules = rules_of(codec);
    PromptReader reader(rules);
    CHECK_THROWS_WITH(reader.prepare({.tokens = {1, 9}, .place = "p:4"}), Contains("p:4: the token 9 is outside"));
    CHECK_THROWS_WITH(reader.prepare(prompt(std::string(19, 'a'))),
                      Contains("p:1: the prompt has 20 tokens, and a context of 20 positions"));
    CHECK_NOTHROW(reader.prepare(prompt(std::string(18, 'a'))));
    CHECK_THROWS_WITH(reader.prepare({.messages = {{"user", "a"}, {"system", "a"}}, .place = "p:1"}),
                      Contains("a system message is the first"));
    rules.start.clear();
    rules.bos.reset();
    CHECK_THROWS_WITH(PromptReader(rules).prepare(prompt("")), Contains("p:1: there is nothing to begin with"));
    GenerationRequest flag = prompt("");
    flag.place = "--prompt";
    CHECK_THROWS_AS(PromptReader(rules).prepare(flag), UsageError);
    rules.score = true;
    CHECK_THROWS_WITH(PromptReader(rules).prepare(prompt("a")), Contains("p:1: a text of one token has no loss"));
    CHECK_NOTHROW(PromptReader(rules).prepare(prompt("ab")));
    rules.end_tokens.resize(33);
    CHECK_THROWS_WITH(PromptReader(rules).prepare(prompt("ab")), Contains("33 end tokens") && Contains("up to 32"));
    rules.end_tokens.resize(32);
    CHECK_NOTHROW(PromptReader(rules).prepare(prompt("ab")));
    rules.read_chat = [] { return chat_of("a\n{{ raise_exception('only ' ~ messages[0].role) }}"); };
    CHECK_THROWS_WITH(PromptReader(rules).prepare({.messages = {{"user", "a"}}, .place = "p:1"}),
                      Contains("p:1: t.jinja: line 2") && Contains("only user"));
}
