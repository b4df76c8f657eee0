// Fine-tuning data: lines to conversations, conversations to tokens that count, and those to rows.
#include "src/tokenize/conversation.h"

#include "src/io/token_mask.h"
#include "src/tokenize/given_text.h"
#include "src/tokenize/masked_tokens.h"
#include "src/tokenize/packing.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"
#include "tests/tokenize/small_tokenizer.h"

using namespace coda;
using Catch::Contains;
using Ids = std::vector<std::uint32_t>;
using Mask = std::vector<std::uint8_t>;

namespace {

Conversation parsed(const std::string& line, const std::string& place) {
    std::int64_t replaced = 0;
    return from_json_line(line, place, InvalidUtf8::stop, replaced,
                          [&](const nlohmann::json& object) { return conversation_of(object, place); });
}

std::string message_of_parse(const std::string& line) {
    try {
        parsed(line, "a.jsonl: line 3");
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

std::string roles(const Conversation& conversation) {
    std::string all;
    for (const ChatMessage& message : conversation.messages) all += message.role + "=" + message.content + ";";
    return all;
}

/// BG is one token, 256; <|end|> is 257.
struct Coder {
    Tokenizer tokenizer;
    MaskedEncoder encoder;

    explicit Coder(bool nfc = false) : tokenizer(spec(nfc)), encoder(tokenizer) {}

    static TokenizerSpec spec(bool nfc) {
        nlohmann::json json = small_tokenizer_json({"B G"});
        if (nfc) json["normalizer"] = {{"type", "NFC"}};
        return parse_tokenizer(json.dump(), "small.json");
    }
    Mask mask(const Rendered& rendered, TrainOn train_on,
              const std::vector<bool>& counts = {false, true, false, true}) {
        const MaskedTokens found = encoder.encode(rendered, counts, train_on);
        CHECK(found.mask.size() == found.tokens.size());
        return found.mask;
    }
};

void add(Rendered& rendered, const std::string& piece, std::int32_t message, bool generation) {
    const std::size_t begin = rendered.text.size();
    rendered.text += piece;
    rendered.runs.push_back(
        {.begin = begin, .end = begin + piece.size(), .message = message, .generation = generation});
    rendered.has_generation = rendered.has_generation || generation;
}

/// Two turns. The last byte of each header is merged with the first one of the answer.
Rendered two_turns(bool blocks) {
    Rendered rendered;
    for (const std::int32_t turn : {0, 2}) {
        add(rendered, "U", -1, false);
        add(rendered, "hi", turn, false);
        add(rendered, "<|end|>B", -1, false);
        add(rendered, "Go", turn + 1, blocks);
        add(rendered, "<|end|>", -1, blocks);
        add(rendered, "\n", -1, false);
    }
    return rendered;
}

}  // namespace

TEST_CASE("the lines that people have become conversations") {
    const auto parse = [](const char* line) { return parsed(line, "here"); };
    CHECK(roles(parse(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                          {"role": "assistant", "content": "a", "tool_calls": null}], "id": 7})")) ==
          "system=s;user=u;assistant=a;");
    CHECK(roles(parse(R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})")) ==
          "user=u;assistant=a;");
    const Conversation both = parse(R"({"prompt": [{"role": "user", "content": "u"}],
                                        "completion": [{"role": "assistant", "content": "a"}]})");
    CHECK(roles(both) == "user=u;assistant=a;");
    CHECK(both.prompt_messages == 1);
    const Conversation texts = parse(R"({"prompt": "p", "completion": "c"})");
    CHECK_FALSE(texts.is_chat());
    CHECK((texts.prompt == "p" && texts.text == "c"));
    CHECK((parse(R"({"text": "t"})").prompt.empty() && parse(R"({"text": "t"})").text == "t"));

    // What Python reads beyond the standard, next to what is taken, stops no file.
    CHECK(parse(R"({"score": NaN, "text": "a", "text": "t"})").text == "t");
    CHECK_THAT(message_of_parse(R"({"text": "\ud83d"})"), Contains("line 3: the text has half of a surrogate pair"));
    CHECK(parse(R"({"id": "\ud83d", "text": "t"})").text == "t");
    CHECK_THAT(message_of_parse("{\"text\": \"\xff\"}"), Contains("line 3: byte 10 of the line: invalid UTF-8"));

    CHECK_THAT(message_of_parse("{"), Contains("a.jsonl: line 3"));
    CHECK_THAT(message_of_parse("[]"), Contains("a JSON object is expected"));
    CHECK_THAT(message_of_parse(R"({"prompt": "p"})"), Contains("line 3: no \"completion\""));
    CHECK_THAT(message_of_parse(R"({"prompt": "p", "completion": []})"), Contains("\"completion\" is not a string"));
    CHECK_THAT(message_of_parse(R"({"content": "t"})"), Contains("none of \"messages\""));
    CHECK_THAT(message_of_parse(R"({"messages": []})"), Contains("messages: a list of messages"));
    CHECK_THAT(message_of_parse(R"({"messages": [{"role": "tool", "content": "x"}]})"),
               Contains("messages[0]: the role \"tool\""));
    CHECK_THAT(message_of_parse(R"({"messages": [{"role": "user"}]})"), Contains("messages[0]: no \"content\""));
    CHECK_THAT(message_of_parse(R"({"messages": [{"role": "user", "content": "", "tool_calls": []}]})"),
               Contains("tool_calls"));
}

TEST_CASE("a token counts if a byte of it is the assistant's, and so does the token that ends the turn") {
    Coder coder;
    const MaskedTokens found = coder.encoder.encode(two_turns(false), {false, true, false, true}, TrainOn::assistant);
    CHECK(found.tokens == Ids{'U', 'h', 'i', 257, 256, 'o', 257, '\n', 'U', 'h', 'i', 257, 256, 'o', 257, '\n'});
    const Mask answers{2, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0};
    const Mask last{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0};
    CHECK(found.mask == answers);
    CHECK(coder.mask(two_turns(true), TrainOn::assistant) == answers);
    for (const bool blocks : {false, true}) {
        CHECK(coder.mask(two_turns(blocks), TrainOn::last) == last);
        CHECK(coder.mask(two_turns(blocks), TrainOn::all) == Mask{3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
        // The first turn is the prompt.
        CHECK(coder.mask(two_turns(blocks), TrainOn::assistant, {false, false, false, true}) == last);
    }
}

TEST_CASE("only a special token of the same turn ends it") {
    Coder coder;
    Rendered rendered;
    add(rendered, "a", 1, false);
    add(rendered, "\n", -1, false);
    add(rendered, "u", 2, false);
    add(rendered, "<|end|><|end|>", -1, false);
    CHECK(coder.mask(rendered, TrainOn::assistant) == Mask{3, 0, 0, 0, 0});
    add(rendered, "b", 3, false);
    add(rendered, "\n<|end|><|end|>", -1, false);
    CHECK(coder.mask(rendered, TrainOn::assistant) == Mask{3, 0, 0, 0, 0, 1, 0, 1, 0});
}

TEST_CASE("a special token that a message spells stays text, also across its border") {
    Coder coder;
    Rendered rendered;
    add(rendered, "<|end|>", -1, false);
    add(rendered, "<|end|>", 1, false);
    add(rendered, "<|", -1, false);
    add(rendered, "end|>", 1, false);
    const MaskedTokens found = coder.encoder.encode(rendered, {false, true}, TrainOn::assistant);
    CHECK(found.tokens == Ids{257, '<', '|', 'e', 'n', 'd', '|', '>', '<', '|', 'e', 'n', 'd', '|', '>'});
    CHECK(found.mask == Mask{2, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1});
}

TEST_CASE("bytes are counted in the text that a normalizer makes") {
    Coder coder(true);
    Rendered rendered;
    add(rendered, "e\xCC\x81", 0, false);  // becomes 0xC3 0xA9
    add(rendered, "x", 1, false);
    add(rendered, "e\xCC\x81", 2, false);
    const MaskedTokens found = coder.encoder.encode(rendered, {false, true, false}, TrainOn::assistant);
    CHECK(found.tokens == Ids{0xC3, 0xA9, 'x', 0xC3, 0xA9});
    CHECK(found.mask == Mask{2, 0, 1, 0, 0});
}

TEST_CASE("rows take the longest first, each where it leaves the least room") {
    using Rows = std::vector<std::vector<std::size_t>>;
    CHECK(pack_rows({3, 7, 5, 2, 4, 10, 5}, 10) == Rows{{5}, {1, 0}, {2, 6}, {4, 3}});
    // 6 and 5 open rows; 4 fits both and takes the one of 6; 3 goes to the one of 5.
    CHECK(pack_rows({3, 4, 5, 6}, 10) == Rows{{3, 1}, {2, 0}});
    CHECK(pack_rows({}, 10).empty());
    CHECK_THROWS_AS(pack_rows({11}, 10), Error);
    CHECK_THROWS_AS(pack_rows({0}, 10), Error);
}
