// A member's text within a document: what a parser finds there, for every member, in any spelling.
#include "src/io/json_member.h"

#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.h"

using namespace coda;
using nlohmann::json;

TEST_CASE("the text of a member is what a parser finds under its key") {
    const json document = {
        {"version", "1.0"},
        {"padding", nullptr},
        {"number", -1.5e3},
        {"yes", true},
        {"empty", json::object()},
        {"none", json::array()},
        {"quotes", R"(a "b", \ }] {[ , model)"},
        {"model", {{"vocab", {{"}", 0}, {"\"", 1}, {"\\", 2}, {"model", 3}}}, {"merges", {"] [", "{ }"}}}},
        {"list", {1, {{"model", 5}}, "x"}}};
    for (const int indent : {-1, 0, 3}) {
        const std::string text = " \n" + document.dump(indent) + "\n";
        CAPTURE(text);
        for (const auto& [key, value] : document.items()) {
            const std::optional<std::string_view> found = json_member(text, key);
            REQUIRE(found.has_value());
            CHECK(json::parse(*found) == value);
            CHECK(std::string_view(" \n,").find(found->back()) == std::string_view::npos);
        }
        CHECK(!json_member(text, "vocab").has_value());  // a member of a member
        CHECK(!json_member(text, "").has_value());
    }
    CHECK(json_member(R"({"a" : 1 , "a":2})", "a") == "1");
    CHECK(json_member(R"({"":[]})", "") == "[]");
    CHECK(!json_member("{}", "a").has_value());
    CHECK(!json_member("[\"a\", 1]", "a").has_value());
    CHECK(!json_member("", "a").has_value());
}

TEST_CASE("a document that ends early has no read behind its end") {
    const std::string whole = R"({"a": "b\"", "model": {"x": [1, "]"]}, "c": -1})";
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const std::string part = whole.substr(0, size);  // a copy of its own, for the sanitizer
        for (const char* key : {"a", "model", "c", "z"})
            if (const auto found = json_member(part, key)) CHECK(found->size() <= part.size());
    }
}
