#include "src/generate/utf8_stream.h"

#include <random>
#include <string>
#include <vector>

#include "src/core/utf8.h"
#include "tests/catch.h"

using namespace coda;

namespace {

/// The pieces that a stream gives for `parts`, and of finish().
std::vector<std::string> pieces_of(const std::vector<std::string>& parts) {
    Utf8Stream stream;
    std::vector<std::string> pieces;
    for (const std::string& part : parts) pieces.push_back(stream.add(part));
    pieces.push_back(stream.finish());
    return pieces;
}

}  // namespace

TEST_CASE("a character is held back until it is whole") {
    CHECK(pieces_of({"a", "\xE4\xB8", "\xADx", ""}) == std::vector<std::string>{"a", "", "\xE4\xB8\xADx", "", ""});
    CHECK(pieces_of({"\xF0", "\x9F", "\x98", "\x80"}) == std::vector<std::string>{"", "", "", "\xF0\x9F\x98\x80", ""});
}

TEST_CASE("bytes that can become no character are U+FFFD, as soon as that is known") {
    const std::string bad = "\xEF\xBF\xBD";
    CHECK(pieces_of({"\x80"}) == std::vector<std::string>{bad, ""});
    CHECK(pieces_of({"\xE4\xB8", "x"}) == std::vector<std::string>{"", bad + "x", ""});  // one for both bytes
    CHECK(pieces_of({"\xE4\xB8"}) == std::vector<std::string>{"", bad});
    CHECK(pieces_of({"\xED", "\xA0", "\x80"}) == std::vector<std::string>{"", bad + bad, bad, ""});  // a surrogate
    CHECK(pieces_of({"\xC0\xAF"}) == std::vector<std::string>{bad + bad, ""});                       // overlong
    CHECK(pieces_of({"\xF4", "\x90"}) == std::vector<std::string>{"", bad + bad, ""});               // beyond U+10FFFF
}

TEST_CASE("any cut of any bytes gives the same text, in valid pieces") {
    std::mt19937 random(20260101);
    const std::vector<std::string> units{"a",    "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\x80", "\xBF", "\xC3",
                                         "\xE4", "\xED\xA0", "\xF0\x9F",     "\xF4\x90",         "\xFF", "\xF0", "\n"};
    for (int round = 0; round < 5000; ++round) {
        std::string whole;
        for (unsigned n = random() % 12; n > 0; --n) whole += units[random() % units.size()];
        std::vector<std::string> parts;
        for (std::size_t at = 0; at < whole.size();) {
            const std::size_t length = 1 + random() % 3;
            parts.push_back(whole.substr(at, length));
            at += length;
        }
        std::string joined;
        for (const std::string& piece : pieces_of(parts)) {
            REQUIRE(valid_utf8(piece) == piece.size());
            joined += piece;
        }
        REQUIRE(joined == replace_invalid_utf8(whole));
    }
}
