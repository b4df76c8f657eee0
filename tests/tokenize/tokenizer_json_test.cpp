// The reader of damaged tokenizer.json files: it accepts the file or throws Error, nothing else.
#include <nlohmann/json.hpp>
#include <random>

#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/tokenize/small_tokenizer.h"

using namespace coda;

namespace {

/// What a file may have in a wrong place.
const std::vector<nlohmann::json>& strange_values() {
    static const std::vector<nlohmann::json> kValues{nullptr,
                                                     true,
                                                     -1,
                                                     4194304,
                                                     1e300,
                                                     "",
                                                     "x",
                                                     "a b c",
                                                     "\u0100 \u0100",
                                                     nlohmann::json::array(),
                                                     {1, 2},
                                                     {"a"},
                                                     0,
                                                     255,
                                                     0.5,
                                                     "a",
                                                     nlohmann::json::object(),
                                                     {{"type", "Sequence"}},
                                                     {{"Regex", "(("}}};
    return kValues;
}

/// Replaces, removes or doubles one value somewhere in `node`.
void damage(nlohmann::json& node, std::mt19937& random) {
    if (!node.is_structured() || node.empty() || random() % 4 == 0) {
        node = strange_values()[random() % strange_values().size()];
        return;
    }
    auto child = node.begin();
    std::advance(child, static_cast<std::ptrdiff_t>(random() % node.size()));
    if (random() % 8 == 0) {
        node.erase(child);
    } else {
        damage(*child, random);
    }
}

/// Whether the reader and the regular expression accept `content`; anything thrown except Error ends the test.
bool accepted(const std::string& content) {
    try {
        const Tokenizer tokenizer(parse_tokenizer(content, "input"));
        std::vector<std::uint32_t> ids;
        Encoder(tokenizer).encode("some text, 123\n\n <|end|>", ids);
        for (const std::uint32_t id : ids) tokenizer.bytes_of(id);
        return true;
    } catch (const Error&) {
        return false;
    }
}

}  // namespace

TEST_CASE("a damaged tokenizer.json is taken or refused with Error") {
    std::mt19937 random(3);
    int taken = 0;
    for (const std::string_view regex : {std::string_view(), kLlama3Regex}) {
        const nlohmann::json file = small_tokenizer_json({"a b", "ab c"}, std::string(regex));
        REQUIRE(accepted(file.dump()));
        for (int i = 0; i < 1500; ++i) {
            nlohmann::json damaged = file;
            for (std::uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
                const bool whole = random() % 2 == 0;  // the vocabulary is most of the file: skip it as often as not
                const std::array<const char*, 4> parts{"model", "pre_tokenizer", "added_tokens", "decoder"};
                damage(whole || !damaged.is_object() ? damaged : damaged[parts[random() % parts.size()]], random);
            }
            taken += accepted(damaged.dump()) ? 1 : 0;
        }
        const std::string text = file.dump();
        for (int i = 0; i < 1500; ++i) {
            std::string bytes = text;
            const std::size_t at = random() % bytes.size();
            switch (random() % 3) {
                case 0: bytes[at] = static_cast<char>(random()); break;
                case 1: bytes.erase(at, 1 + random() % 40); break;
                default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 40));
            }
            taken += accepted(bytes) ? 1 : 0;
        }
    }
    CHECK(taken > 0);
    CHECK(taken < 3000);
}

TEST_CASE("what is wrong with a tokenizer.json is said with its place") {
    const nlohmann::json good = small_tokenizer_json({"a b"});
    const auto message = [&](const char* pointer, nlohmann::json value) {
        nlohmann::json file = good;
        file[nlohmann::json::json_pointer(pointer)] = std::move(value);
        return message_of([&] { parse_tokenizer(file.dump(), "t.json"); });
    };
    CHECK(message("/version", "1.0").empty());
    CHECK(message("/model/merges/0", {"a", "b"}).empty());
    CHECK(contains(message("/model/merges/0", "a c"), "t.json: model.merges[0]: \"ac\" is not in the vocabulary"));
    CHECK(contains(message("/model/merges/0", "ab"), "t.json: model.merges[0]: two tokens with one space"));
    CHECK(contains(message("/model/vocab/a", 98), "t.json: model.vocab.b: id 98 is given to two tokens"));
    CHECK(contains(message("/model/vocab/a", -1), "t.json: model.vocab.a: a token id from 0"));
    CHECK(contains(message("/added_tokens/1/id", 97), "t.json: added_tokens[1]: <|endless|> has id 97 here"));
    CHECK(contains(message("/added_tokens/1/content", "<|end|>"), "is given twice"));
    CHECK(contains(message("/added_tokens/0/content", "ab"),
                   "has id 257 here, but the library gives it the id 256 of the vocabulary"));
    CHECK(contains(message_of([] { parse_tokenizer("{\"model\": {}, ", "t.json"); }), "t.json:1:"));
}
