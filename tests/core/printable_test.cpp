#include "src/core/printable.h"

#include <array>
#include <cstdint>
#include <vector>

#include "tests/catch.h"

using namespace coda;

namespace {

std::string escape_of(const std::string& bytes) {
    std::string out;
    for (const char each : bytes) {
        std::array<char, 5> escaped{};
        std::snprintf(escaped.data(), escaped.size(), "\\x%02x",
                      static_cast<unsigned>(static_cast<unsigned char>(each)));
        out += escaped.data();
    }
    return out;
}

/// UTF-8 of a code point, as the standard's table of bits gives it; surrogates and overlong forms can be asked for.
std::string encoded(std::uint32_t code, int bytes) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80U | (code >> shift & 0x3fU)); };
    if (bytes == 1) return {static_cast<char>(code)};
    if (bytes == 2) return {static_cast<char>(0xc0U | code >> 6U), tail(0)};
    if (bytes == 3) return {static_cast<char>(0xe0U | code >> 12U), tail(6), tail(0)};
    return {static_cast<char>(0xf0U | code >> 18U), tail(12), tail(6), tail(0)};
}

}  // namespace

TEST_CASE("every Unicode character but controls stays unchanged") {
    std::string wrong;
    for (std::uint32_t code = 0; code < 0x110000; ++code) {
        const bool surrogate = code >= 0xd800 && code < 0xe000;
        const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        const std::string text = encoded(code, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        const std::string expected = surrogate || (control && code != '\n') ? escape_of(text) : text;
        if (printable(text) != expected) wrong += std::to_string(code) + " ";
    }
    CHECK(wrong.empty());
}

TEST_CASE("what is no UTF-8 is escaped byte by byte, and what follows it is not") {
    std::vector<std::string> bad = {"\x80", "\xbf", "\xfe", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98"};
    for (std::uint32_t code : {0U, 0x1bU, 0x2fU, 0x7fU}) {  // ESC in two bytes is what a lenient terminal would obey
        bad.push_back(encoded(code, 2));
        bad.push_back(encoded(code, 3));
        bad.push_back(encoded(code, 4));
    }
    bad.push_back(encoded(0x7ff, 3));
    bad.push_back(encoded(0xffff, 4));
    bad.push_back(encoded(0x110000, 4));
    for (const std::string& bytes : bad) {
        CAPTURE(escape_of(bytes));
        CHECK(printable(bytes) == escape_of(bytes));
        CHECK(printable("a" + bytes + "z\xc3\xa9") == "a" + escape_of(bytes) + "z\xc3\xa9");
    }
}

TEST_CASE("only the characters that are asked for are kept") {
    CHECK(printable("a\n\tb\r") == "a\n\\x09b\\x0d");
    CHECK(printable("a\n\tb\r", "\n\t") == "a\n\tb\\x0d");
    CHECK(printable("a\nb", "") == "a\\x0ab");
    CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
}

TEST_CASE("parts show what the whole text shows, wherever it is cut") {
    const std::string text = "a\xc3\xa9\x1b[0m\xf0\x9f\x98\x80\t\xe2\x82\xf0\x9f\x98z\xc2\x9b\n\xe2\x82";
    const std::string whole = printable(text, "\n\t");
    for (std::size_t one = 0; one <= text.size(); ++one) {
        for (std::size_t two = one; two <= text.size(); ++two) {
            PrintableParts parts("\n\t");
            std::string shown = parts.add(text.substr(0, one));
            shown += parts.add(text.substr(one, two - one));
            shown += parts.add(text.substr(two));
            CHECK(shown + parts.finish() == whole);
        }
    }
}

TEST_CASE("a part is shown as soon as its characters are whole") {
    PrintableParts parts("");
    CHECK(parts.add("a\xe2\x82") == "a");
    CHECK(parts.add("\xac") == "\xe2\x82\xac");
    CHECK(parts.finish().empty());
}
