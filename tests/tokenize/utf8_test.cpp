#include "src/core/utf8.h"

#include "tests/catch.h"

using namespace coda;

TEST_CASE("every code point survives being written and read, and nothing else is one") {
    for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string bytes;
        append_utf8(bytes, c);
        const CodePoint read = decode_utf8(bytes);
        REQUIRE(read.value == c);
        REQUIRE(read.length == bytes.size());
        REQUIRE(valid_utf8("long ascii text " + bytes) == 16 + bytes.size());
        REQUIRE(valid_utf8(bytes.substr(0, bytes.size() - 1)) == 0);
    }
    // Overlong forms, surrogates, beyond U+10FFFF, stray continuation bytes.
    for (const char* bad : {"\xC0\x80", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\x80",
                            "\xFF", "\xF8\x88\x80\x80\x80"}) {
        CHECK(valid_utf8(bad) == 0);
        CHECK(valid_utf8(std::string("12345678abc") + bad) == 11);
        CHECK(decode_utf8(bad).length == 0);
    }
}

TEST_CASE("invalid UTF-8 is replaced as Python does it: once for each maximal part of a sequence") {
    const std::string r = "\xEF\xBF\xBD";
    CHECK(replace_invalid_utf8("a\xE2\x82z") == "a" + r + "z");  // a sequence that is cut off
    CHECK(replace_invalid_utf8("\xED\xA0\x80") == r + r + r);    // a surrogate: none of its bytes is valid
    CHECK(replace_invalid_utf8("\xF0\x90\x80\xE2\x82\xAC") == r + "\xE2\x82\xAC");
    CHECK(replace_invalid_utf8("\xC0\xAF\xFF") == r + r + r);
    CHECK(replace_invalid_utf8("plain") == "plain");
    CHECK(replace_invalid_utf8("end\xF0\x9F") == "end" + r);
}
