#include "src/tokenize/encoder.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/tokenize/small_tokenizer.h"

using namespace coda;
using Ids = std::vector<std::uint32_t>;

namespace {

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
    Ids ids;
    Encoder(tokenizer).encode(text, ids);
    return ids;
}

/// The definition: scan for the least rank again and again.
Ids textbook(std::string_view word, const std::vector<Merge>& merges) {
    Ids ids;
    for (const char byte : word) ids.push_back(static_cast<unsigned char>(byte));
    for (;;) {
        std::size_t best = merges.size(), at = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            for (std::size_t rank = 0; rank < best; ++rank) {
                if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) best = rank, at = i;
            }
        }
        if (best == merges.size()) return ids;
        ids[at] = merges[best].result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

}  // namespace

TEST_CASE("short and long words are merged as the definition says") {
    const TokenizerSpec spec =
        small_spec({"a a", "b a", "aa aa", "a b", "c ba", "aa b", "ab ab", "aaaa c", "b b", "a ba"});
    const MergeTable table(spec.merges);
    PairMerger merger(table);
    std::mt19937 random(7);
    for (int trial = 0; trial < 2000; ++trial) {
        std::string word(1 + random() % (trial % 2 == 0 ? 12 : 200), ' ');
        for (char& c : word) c = "abc"[random() % 3];
        Ids ids;
        merger.merge(Ids(word.begin(), word.end()), ids);
        INFO(word);
        REQUIRE(ids == textbook(word, spec.merges));
    }
}

TEST_CASE("added tokens are taken leftmost and longest, look-alikes are text") {
    const Tokenizer tokenizer(small_spec({}));
    const std::uint32_t end = 256, endless = 257, open = 258;
    CHECK(encoded(tokenizer, "a<|end|>b") == Ids{'a', end, 'b'});
    CHECK(encoded(tokenizer, "<|endless|>") == Ids{endless});
    CHECK(encoded(tokenizer, "<|endles|>") == Ids{open, 'l', 'e', 's', '|', '>'});
    CHECK(encoded(tokenizer, "<|END|>") == Ids{'<', '|', 'E', 'N', 'D', '|', '>'});
    CHECK(encoded(tokenizer, "<<|end|><|end|>") == Ids{'<', end, end});
    CHECK(encoded(tokenizer, "").empty());
    CHECK(tokenizer.id_of("<|end|>") == end);
    CHECK_FALSE(tokenizer.id_of("<|none|>").has_value());
}

TEST_CASE("white space that a token takes is no other token") {
    nlohmann::json json = small_tokenizer_json({"a b"});
    json["added_tokens"].push_back({{"id", 260}, {"content", "<s>"}, {"special", true}, {"rstrip", true}});
    json["added_tokens"].push_back({{"id", 261}, {"content", "\n\n"}, {"special", false}, {"normalized", false}});
    json["added_tokens"].push_back({{"id", 262}, {"content", " x"}, {"special", false}, {"normalized", false}});
    const Tokenizer tokenizer(parse_tokenizer(json.dump(), "small.json"));
    CHECK(encoded(tokenizer, "<s>\n\na") == Ids{260, 'a'});
    CHECK(encoded(tokenizer, "<s>  x") == Ids{260, 262});  // reaches beyond it
    CHECK(encoded(tokenizer, "\n\n<s>") == Ids{261, 260});
}

TEST_CASE("many added tokens that begin alike, and long runs of marks, take no longer") {
    nlohmann::json json = small_tokenizer_json({});
    json["normalizer"] = {{"type", "NFC"}};
    for (int i = 0; i < 5000; ++i) {
        json["added_tokens"].push_back(
            {{"id", 259 + i}, {"content", "<unused" + std::to_string(i) + ">"}, {"special", true}});
    }
    const Tokenizer tokenizer(parse_tokenizer(json.dump(), "small.json"));
    CHECK(encoded(tokenizer, "<unused4999><unused5000>").front() == 259 + 4999);
    // Minutes, if each "<" were compared with all of them.
    CHECK(encoded(tokenizer, std::string(2'000'000, '<')).size() == 2'000'000);
    // Marks of two classes in turns: canonical order has all of the lower class first.
    std::string marks, low, high;
    for (int i = 0; i < 100'000; ++i) {
        marks += "\xCC\x81\xCC\x96";  // U+0301 of class 230, U+0316 of class 220
        low += "\xCC\x96";
        high += "\xCC\x81";
    }
    std::string storage;
    CHECK(tokenizer.normalizer().apply("b" + marks + "c", true, storage) == "b" + low + high + "c");
    CHECK(tokenizer.normalizer().apply("a" + marks + "c", true, storage) == "\xC3\xA1" + low + high.substr(2) + "c");
}

TEST_CASE("what a message spells is no special token, but may be another added token") {
    nlohmann::json json = small_tokenizer_json({"a b"});
    json["added_tokens"].push_back({{"id", 260}, {"content", "<tool>"}, {"special", false}, {"normalized", false}});
    json["added_tokens"].push_back({{"id", 261}, {"content", "<eot>"}, {"special", true}, {"normalized", true}});
    const Tokenizer tokenizer(parse_tokenizer(json.dump(), "small.json"));
    Encoder encoder(tokenizer);
    const TextRanges all{.plain = {{0, 100}}};
    Ids ids, spelled;
    encoder.encode("ab<|end|><eot>", all, ids);
    for (const char byte : std::string("<|end|><eot>")) spelled.push_back(static_cast<unsigned char>(byte));
    spelled.insert(spelled.begin(), 256);
    CHECK(ids == spelled);
    CHECK(encoded(tokenizer, "ab<|end|><eot>") == Ids{256, 257, 261});
    ids.clear();
    encoder.encode("a<tool>", all, ids);
    CHECK(ids == Ids{'a', 260});
    // One byte of a message is enough, and what comes before and after it does not matter.
    ids.clear();
    const TextRanges some{.plain = {{0, 1}, {4, 5}, {9, 10}}};
    encoder.encode("a<eot>b<eot>", some, ids);
    CHECK(ids == Ids{'a', '<', 'e', 'o', 't', '>', 'b', '<', 'e', 'o', 't', '>'});
    ids.clear();
    const TextRanges others{.plain = {{0, 1}, {6, 7}}};
    encoder.encode("a<eot>b<|end|>", others, ids);
    CHECK(ids == Ids{'a', 261, 'b', 257});
    CHECK(tokenizer.has(256));
    CHECK_FALSE((tokenizer.has(290) || tokenizer.has(1000)));
}

TEST_CASE("an added token ends a piece: white space before it does not see what follows") {
    // GPT-2 keeps the last space of a run for the next word, but not at the end of a piece.
    const Tokenizer tokenizer(small_spec({"Ġ Ġ"}));
    CHECK(encoded(tokenizer, "a  b") == Ids{'a', ' ', ' ', 'b'});
    CHECK(encoded(tokenizer, "a  <|end|>") == Ids{'a', 256, 257});
}

TEST_CASE("ignore_merges takes a pre-token that is in the vocabulary whole") {
    // "abc" is a token that the merges of "abc" do not reach: a+b comes first and has no merge with c.
    nlohmann::json file = small_tokenizer_json({"a b", "b c"}, std::string(kLlama3Regex));
    file["model"]["vocab"]["abc"] = 300;
    file["added_tokens"] = nlohmann::json::array();
    CHECK(encoded(Tokenizer(parse_tokenizer(file.dump(), "t")), "abc") == Ids{300});
    file["model"]["ignore_merges"] = false;
    CHECK(encoded(Tokenizer(parse_tokenizer(file.dump(), "t")), "abc") == Ids{256, 'c'});
}

TEST_CASE("NFC composes what belongs together, Hangul included") {
    nlohmann::json file = small_tokenizer_json({});
    file["normalizer"] = {{"type", "NFC"}};
    const Tokenizer tokenizer(parse_tokenizer(file.dump(), "t"));
    CHECK(encoded(tokenizer, "e\xCC\x81") == Ids{0xC3, 0xA9});
    CHECK(encoded(tokenizer, "\xE1\x84\x92\xE1\x85\xA1") == Ids{0xED, 0x95, 0x98});
    CHECK(encoded(tokenizer, "\xE2\x84\xAA") == Ids{'K'});
}

TEST_CASE("regular expressions are translated, or refused by the part that is not known") {
    CHECK(to_pcre2(R"([^\s\p{L}]+|\s+(?!\S))", "t") ==
          R"([^\t-\r\x{85}\p{Z}\p{L}]+|[\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}]))");
    for (const auto& [pattern, part] : std::vector<std::pair<std::string, std::string>>{{R"(\h+)", R"("\h")"},
                                                                                        {R"(\bx)", R"("\b")"},
                                                                                        {"(?<=a)b", "\"(?<=\""},
                                                                                        {R"(\p{Han}+)", R"("\p{Han}")"},
                                                                                        {"[a[b]]", "\"[b\""},
                                                                                        {"[a&&b]", "\"&&\""},
                                                                                        {"a{2}+", "\"{2}+\""},
                                                                                        {"a{,2}", "\"{,2}\""},
                                                                                        {"^a", "\"^\""},
                                                                                        {"a.b", "\".\""},
                                                                                        {"(*UCP)a", "\"(*UC\""},
                                                                                        {R"([\S])", R"("\S")"},
                                                                                        {"a\\", "\"\\\""},
                                                                                        {"[a", "\"[a\""}}) {
        INFO(pattern);
        CHECK(contains(message_of([&, &p = pattern] { Regex(p, "place"); }), "place: " + part));
    }
    CHECK(contains(message_of([] { Regex("a*", "place"); }), "can match the empty text"));
    CHECK(contains(message_of([] { Regex("(a", "place"); }), "not valid"));
}

TEST_CASE("the cache forgets when it is full and changes nothing") {
    const Tokenizer tokenizer(small_spec({"a a"}));
    std::string text;
    for (int i = 0; i < 150000; ++i) text += " w" + std::to_string(i) + "aa";
    Encoder encoder(tokenizer);
    Ids first, second;
    encoder.encode(text, first);
    encoder.encode(text, second);
    CHECK(first == second);
}
