#include "src/tokenize/segments.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "src/tokenize/cuts.h"
#include "src/tokenize/encode_segment.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"
#include "tests/tokenize/small_tokenizer.h"

using namespace coda;
using Ids = std::vector<std::uint32_t>;

namespace {

/// Text that the regular expressions split differently, with many places that look like cuts.
std::string random_text(std::mt19937& random, int pieces) {
    static const std::vector<std::string> kPieces{
        "a",   "b1",           " ",         " ", "\n", "\n\n", "\r\n",    "\t",          "'s",    "'ll",          "12",
        "9",   "\xC3\xA9",     "e\xCC\x81", "!", "..", "x ",   "<|end|>", "<|endless|>", "<|end", "\xE3\x80\x80", "\n ",
        " \n", "\xE2\x80\xA8", "\xCC\x81"};
    std::string text;
    for (int i = 0; i < pieces; ++i) text += kPieces[random() % kPieces.size()];
    return text;
}

Ids by_segments(const Tokenizer& tokenizer, const std::filesystem::path& path, std::size_t bytes, int& segments) {
    SegmentReader reader(tokenizer, {path.string()}, {.format = TextFormat::txt, .segment_bytes = bytes});
    Encoder encoder(tokenizer);
    Ids ids;
    while (const auto segment = reader.next()) {
        ++segments;
        const Encoded encoded = encode_segment(*segment, {}, 0, encoder);
        ids.insert(ids.end(), encoded.train.begin(), encoded.train.end());
    }
    return ids;
}

}  // namespace

TEST_CASE("segments of a text give the tokens of the whole") {
    const ScratchFolder folder;
    std::mt19937 random(11);
    int segments = 0;
    for (const std::string_view regex : {std::string_view(), kLlama3Regex, kQwen2Regex}) {
        nlohmann::json file = small_tokenizer_json({"Ċ Ċ", "Ġ Ġ", "Ġ Ċ", "Ġ a", "1 2", "! Ċ"}, std::string(regex));
        if (regex == kQwen2Regex) file["normalizer"] = {{"type", "NFC"}};
        const Tokenizer tokenizer(parse_tokenizer(file.dump(), "t"));
        for (int trial = 0; trial < 300; ++trial) {
            const std::string text = random_text(random, 400);
            put(folder.path() / "a.txt", text);
            Ids whole;
            Encoder(tokenizer).encode(text, whole);
            INFO(regex << "\n" << text);
            REQUIRE(by_segments(tokenizer, folder.path() / "a.txt", 16 + random() % 64, segments) == whole);
        }
    }
    CHECK(segments > 3000);  // it did cut
}

TEST_CASE("cuts are derived from any expression, from Sequences and from a vocabulary of characters") {
    const ScratchFolder folder;
    std::mt19937 random(12);
    const auto split = [](const std::string& regex, const char* behavior = "Isolated") {
        return nlohmann::json{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}};
    };
    const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    nlohmann::json gpt2 = byte_level;
    gpt2["use_regex"] = true;
    const auto sequence = [](std::vector<nlohmann::json> steps) {
        return nlohmann::json{{"type", "Sequence"}, {"pretokenizers", steps}};
    };
    const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])",
                      mark = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?", begin = R"([^\r\n\p{L}\p{N}]?)";
    const std::string o200k = begin + upper + "*" + lower + "+" + mark + "|" + begin + upper + "+" + lower + "*" +
                              mark + R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    const nlohmann::json digits = {{"type", "Digits"}, {"individual_digits", true}};
    const nlohmann::json metaspace = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
    for (const nlohmann::json& steps :
         {sequence({split(o200k), byte_level}), sequence({split(R"(\S+|\s+)"), byte_level}), sequence({digits, gpt2}),
          sequence({split(R"([\r\n])"), split(R"(\s?\p{L}+)"), split(R"(\s+$)"), digits, byte_level}),
          sequence({split("ab", "MergedWithPrevious"), gpt2}), metaspace, nlohmann::json()}) {
        nlohmann::json file = small_tokenizer_json({"Ċ Ċ", "Ġ Ġ", "Ġ Ċ", "Ġ a", "1 2", "! Ċ"});
        file["pre_tokenizer"] = steps;
        if (!contains(steps.dump(), "ByteLevel")) {
            file["decoder"] = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
            file["model"]["vocab"]["\u2581"] = 400;
            file["model"]["vocab"]["\n"] = 401;
            for (const char* token : {"a", "b", "1", "2", "\u2581"}) {  // what most tokens begin with
                const std::size_t id = 140 + file["model"]["vocab"].size();
                file["model"]["vocab"][std::string("\u2581") + token] = id;
            }
        }
        if (steps.is_null()) {
            file["normalizer"] = {{"type", "Sequence"},
                                  {"normalizers",
                                   {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                                    {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
        }
        file["added_tokens"] = nlohmann::json::array();
        for (const char* name : {"<|end|>", "<|endless|>", "<|end"}) {
            file["added_tokens"].push_back({{"id", file["model"]["vocab"].size() + file["added_tokens"].size()},
                                            {"content", name},
                                            {"special", name[5] == 0},
                                            {"normalized", name[5] != 0},
                                            {"rstrip", true},
                                            {"lstrip", name[5] == 0}});
        }
        const Tokenizer tokenizer(parse_tokenizer(file.dump(), "t"));
        int segments = 0;
        for (int trial = 0; trial < 200; ++trial) {
            const std::string text = random_text(random, 400);
            put(folder.path() / "a.txt", text);
            Ids whole;
            Encoder(tokenizer).encode(text, whole);
            INFO(steps << "\n" << text);
            REQUIRE(by_segments(tokenizer, folder.path() / "a.txt", 16 + random() % 64, segments) == whole);
        }
        INFO(steps);
        CHECK(segments > 400);  // it did cut
    }
}

TEST_CASE("an expression that keeps nothing apart is never cut, and a text too long for that is refused") {
    const ScratchFolder folder;
    const Tokenizer tokenizer(small_spec({}, R"((?:\S|\s)+)"));
    put(folder.path() / "a.txt", "some words\nand lines\n");
    CHECK(TextCutter(tokenizer).find("some words\nand lines\nand more than a token's length and the margin").at == 0);
    SegmentReader reader(tokenizer, {(folder.path() / "a.txt").string()},
                         {.format = TextFormat::txt, .segment_bytes = 4, .max_segment_bytes = 16});
    CHECK(contains(message_of([&] { reader.next(); }), "no place where the tokenizer surely keeps"));
}

TEST_CASE("lines of JSON stay whole, and one that is too long is refused with its number") {
    const ScratchFolder folder;
    const Tokenizer tokenizer(small_spec({}));
    put(folder.path() / "a.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": \"c\"}\n" + std::string(200, ' ') + "\n");
    SegmentReader reader(tokenizer, {(folder.path() / "a.jsonl").string()},
                         {.segment_bytes = 20, .max_line_bytes = 64});
    Ids ids;
    Encoder encoder(tokenizer);
    std::string message = message_of([&] {
        while (const auto segment = reader.next()) {
            const Ids part = encode_segment(*segment, {}, 0, encoder).train;
            ids.insert(ids.end(), part.begin(), part.end());
        }
    });
    CHECK(ids == Ids{'a', 'b', 'c'});
    CHECK(contains(message, "line 4 has more than 64 bytes"));
}

TEST_CASE("validation documents are the fraction asked for, evenly spread") {
    for (const double fraction : {0.0, 0.001, 0.1, 0.5, 0.99}) {
        int count = 0, longest = 0, run = 0;
        for (int i = 0; i < 10000; ++i) {
            const bool validation = is_validation(i, fraction);
            count += validation ? 1 : 0;
            run = validation ? 0 : run + 1;
            longest = std::max(longest, run);
        }
        CHECK(count == static_cast<int>(10000 * fraction));
        if (fraction > 0) CHECK(longest <= 1 / fraction);
    }
}
