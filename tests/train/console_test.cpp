#include "src/core/console.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tests/catch.h"

using namespace coda;

TEST_CASE("durations, counts and bytes as people read them") {
    CHECK(duration_text(47.2) == "47s");
    CHECK(duration_text(59.7) == "1m00s");
    CHECK(duration_text(185) == "3m05s");
    CHECK(duration_text(7620) == "2h07m");
    CHECK(duration_text(4 * 86400 + 3 * 3600) == "4d03h");
    CHECK(duration_text(std::numeric_limits<double>::infinity()) == "?");
    CHECK(count_text(950) == "950");
    CHECK(count_text(9700) == "9.7k");
    CHECK(count_text(1498482688) == "1.5B");
    CHECK(bytes_text(300) == "300 B");
    CHECK(bytes_text(1.5 * 1024 * 1024 * 1024) == "1.50 GiB");
}

TEST_CASE("a step's line names everything and aligns steps") {
    const std::string line = step_line({.step = 7,
                                        .steps = 400,
                                        .loss = 2.34567,
                                        .grad_norm = 0.5,
                                        .lr = 2.87e-3,
                                        .ms = 212.34,
                                        .tokens_per_s = 9650,
                                        .eta_s = 62});
    CHECK(line == "step   7/400 | loss 2.3457 | norm 0.500 | lr 2.87e-03 | 212.3 ms | 9.65k tok/s | eta 1m02s");
}

TEST_CASE("what is not a terminal gets whole lines and no control characters") {
    std::FILE* file = std::tmpfile();
    REQUIRE(file != nullptr);
    {
        Console console(file);
        console.line("begin");
        console.step({.step = 1, .steps = 2, .loss = 1});
        console.step({.step = 2, .steps = 2, .loss = 1});
    }
    std::rewind(file);
    std::array<char, 1024> buffer{};
    const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), file);
    std::fclose(file);
    const std::string text(buffer.data(), size);
    CHECK(std::count(text.begin(), text.end(), '\n') == 3);
    CHECK(text.find('\r') == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
}
