#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/tokenize/encoder.h"
#include "tests/tokenize/small_tokenizer.h"

using namespace coda;

namespace {

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

Pairs pairs(const std::vector<TextRange>& ranges) {
    Pairs result;
    for (const TextRange& range : ranges) result.emplace_back(range.begin, range.end);
    return result;
}

NormalizerStep prepend(const std::string& content) {
    return {.kind = NormalizerStep::Kind::prepend, .content = content};
}
NormalizerStep replace(const std::string& pattern, const std::string& content) {
    return {.kind = NormalizerStep::Kind::replace, .pattern = pattern, .content = content};
}

struct Normalized {
    std::string text;
    Pairs plain;
};

Normalized normalized(const std::vector<NormalizerStep>& steps, const std::string& text, std::vector<TextRange> plain) {
    TextRanges ranges{.plain = std::move(plain)};
    std::string storage;
    const std::string result(Normalizer(steps).apply(text, true, storage, &ranges));
    return {result, pairs(ranges.plain)};
}

}  // namespace

TEST_CASE("ranges of a text: what they touch and cover, and a part of them") {
    const std::vector<TextRange> ranges{{2, 4}, {4, 6}, {8, 9}};
    CHECK_FALSE(touches(ranges, 0, 2));
    CHECK(touches(ranges, 0, 3));
    CHECK_FALSE(touches(ranges, 6, 8));
    CHECK(touches(ranges, 6, 9));
    CHECK_FALSE(touches(ranges, 9, 100));
    CHECK_FALSE(touches(ranges, 3, 3));
    CHECK(covers(ranges, 2, 6));
    CHECK(covers(ranges, 3, 5));
    CHECK_FALSE(covers(ranges, 2, 7));
    CHECK_FALSE(covers(ranges, 1, 4));
    const TextRanges within = TextRanges{.plain = ranges, .counted = {{0, 100}}}.within(3, 9);
    CHECK(pairs(within.plain) == Pairs{{0, 1}, {1, 3}, {5, 6}});
    CHECK(pairs(within.counted) == Pairs{{0, 6}});
}

TEST_CASE("ranges follow a text through its normalizer") {
    const Normalized spaces = normalized({prepend("_"), replace(" ", "~~~")}, "a b c", {{0, 2}, {3, 4}});
    CHECK(spaces.text == "_a~~~b~~~c");
    CHECK(spaces.plain == Pairs{{0, 5}, {6, 9}});
    const Normalized shorter = normalized({replace("abc", "x")}, "abcabcabc", {{1, 2}, {3, 6}, {8, 9}});
    CHECK(shorter.text == "xxx");
    CHECK(shorter.plain == Pairs{{0, 1}, {1, 2}, {2, 3}});
    const std::vector<NormalizerStep> nfc{{.kind = NormalizerStep::Kind::nfc}};
    // e + acute becomes one character of two bytes, wherever a range divides them.
    const Normalized whole = normalized(nfc, "ae\xCC\x81z", {{1, 4}});
    CHECK(whole.text == "a\xC3\xA9z");
    CHECK(whole.plain == Pairs{{1, 3}});
    CHECK(normalized(nfc, "ae\xCC\x81z", {{0, 2}, {4, 5}}).plain == Pairs{{0, 3}, {3, 4}});
    CHECK(normalized(nfc, "ae\xCC\x81z", {{2, 5}}).plain == Pairs{{1, 4}});
    // A line end composes with nothing.
    CHECK(normalized(nfc, "e\xCC\x81\n\xCC\x81z", {{4, 7}}).plain == Pairs{{3, 6}});
}

TEST_CASE("a special token that a message helps to spell hides no shorter one") {
    nlohmann::json json = small_tokenizer_json({"a b"});
    json["added_tokens"].push_back({{"id", 260}, {"content", "<e>"}, {"special", true}, {"normalized", false}});
    json["added_tokens"].push_back({{"id", 261}, {"content", "<e>x"}, {"special", true}, {"normalized", false}});
    json["added_tokens"].push_back({{"id", 262}, {"content", "y<e>"}, {"special", true}, {"normalized", false}});
    const Tokenizer tokenizer(parse_tokenizer(json.dump(), "small.json"));
    const auto ids = [&](const std::string& text, const TextRanges& ranges) {
        std::vector<std::uint32_t> result;
        Encoder(tokenizer).encode(text, ranges, result);
        return result;
    };
    using Ids = std::vector<std::uint32_t>;
    CHECK(ids("<e>x", {}) == Ids{261});
    CHECK(ids("<e>x", {.plain = {{3, 4}}}) == Ids{260, 'x'});
    CHECK(ids("y<e>", {}) == Ids{262});
    CHECK(ids("y<e>", {.plain = {{0, 1}}}) == Ids{'y', 260});
    CHECK(ids("y<e>", {.plain = {{0, 4}}}) == Ids{'y', '<', 'e', '>'});
}

TEST_CASE("which tokens count: those with a byte that does") {
    const Tokenizer tokenizer(small_spec({"a b", "ab c", "Ġ d"}));
    const auto counts = [&](const std::string& text, std::vector<TextRange> counted) {
        std::vector<std::uint32_t> ids;
        std::vector<std::uint8_t> touched;
        Encoder(tokenizer).encode(text, {.counted = std::move(counted)}, ids, &touched);
        std::vector<std::uint32_t> alone;
        Encoder(tokenizer).encode(text, alone);
        CHECK(ids == alone);
        std::vector<bool> result;
        for (const std::uint8_t bits : touched) result.push_back(bits == kTouchesCounted);
        return result;
    };
    using Flags = std::vector<bool>;
    // abc, " d", ab, x, <|end|>
    const std::string text = "abc dabx<|end|>";
    CHECK(counts(text, {}) == Flags{false, false, false, false, false});
    CHECK(counts(text, {{0, 15}}) == Flags{true, true, true, true, true});
    CHECK(counts(text, {{2, 4}}) == Flags{true, true, false, false, false});
    CHECK(counts(text, {{5, 6}, {14, 15}}) == Flags{false, false, true, false, true});
    CHECK(counts(text, {{7, 8}}) == Flags{false, false, false, true, false});
}

TEST_CASE("a message's word is no special token, whatever the vocabulary has") {
    nlohmann::json json = small_tokenizer_json({"a b"}, std::string(kLlama3Regex));
    json["model"]["vocab"]["<|end|>"] = 257;  // ignore_merges takes a word that is in the vocabulary whole
    json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Tokenizer tokenizer(parse_tokenizer(json.dump(), "small.json"));
    std::vector<std::uint32_t> ids;
    Encoder(tokenizer).encode("<|end|>", {.plain = {{0, 7}}}, ids);
    CHECK(ids == std::vector<std::uint32_t>{'<', '|', 'e', 'n', 'd', '|', '>'});
}
