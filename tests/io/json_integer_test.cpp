#include "src/io/json_integer.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;

TEST_CASE("integers of JSON are read as they stand, and numbers that are none are refused") {
    const auto read = [](const char* json) { return integer_of(nlohmann::json::parse(json), "its step"); };
    CHECK(read("0") == 0);
    CHECK(read("-3") == -3);
    CHECK(read("9223372036854775807") == INT64_MAX);
    CHECK(read("-9223372036854775808") == INT64_MIN);
    for (const char* json :
         {"9223372036854775808", "18446744073709551615", "7.0", "1e30", "-1e30", "\"7\"", "null", "[7]"}) {
        INFO(json);
        CHECK_THAT(message_of([&] { read(json); }), Catch::Matchers::StartsWith("its step is ") &&
                                                        Catch::Matchers::EndsWith(", not an integer of 64 bits"));
    }
}
