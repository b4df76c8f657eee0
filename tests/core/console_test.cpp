#include "src/core/console.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>

#include "tests/catch.h"

using namespace coda;
using Catch::Contains;

namespace {

/// What has been written to a file that is open for reading too.
std::string contents(std::FILE* file) {
    std::rewind(file);
    std::array<char, 4096> buffer{};
    const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), file);
    return std::string(buffer.data(), size);
}

}  // namespace

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
    const std::string text = contents(file);
    std::fclose(file);
    CHECK(std::count(text.begin(), text.end(), '\n') == 3);
    CHECK(text.find('\r') == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("a console shows control characters of names as escapes, and keeps the lines of a text") {
    std::FILE* file = std::tmpfile();
    REQUIRE(file != nullptr);
    Console(file).line("weights from \x1b[31mred\r\xff\nsecond \xc3\xa9");
    CHECK(contents(file) == "weights from \\x1b[31mred\\x0d\\xff\nsecond \xc3\xa9\n");
    std::fclose(file);
}

TEST_CASE("a console that nobody can read is said once, and counted at the end") {
    std::FILE* full = std::fopen("/dev/full", "w");
    std::FILE* err = std::tmpfile();
    REQUIRE(full != nullptr);
    REQUIRE(err != nullptr);
    {
        Console console(full, Console::Loss::tolerated, err);
        CHECK(contents(err).empty());
        console.line("one");
        console.line(std::string(100000, 'x'));  // more than a buffer
        console.step({.step = 1, .steps = 2, .loss = 1});
        CHECK(contents(err) ==
              "coda_train: standard output: No space left on device; the run continues, with its log\n");
    }
    CHECK_THAT(contents(err), Contains("note: lines that did not reach standard output: 3;"));
    std::fclose(full);
    std::fclose(err);
}

TEST_CASE("a console whose lines are the result throws where one is lost") {
    std::FILE* full = std::fopen("/dev/full", "w");
    std::FILE* err = std::tmpfile();
    REQUIRE(full != nullptr);
    REQUIRE(err != nullptr);
    {
        Console console(full, Console::Loss::thrown, err);
        CHECK_THROWS_WITH(console.line("loss"), "standard output: No space left on device");
    }
    CHECK(contents(err).empty());
    std::fclose(full);
    std::fclose(err);
}

TEST_CASE("a lost line is left out, and the lines after it are written when there is room again") {
    const auto no_signal = std::signal(SIGXFSZ, SIG_IGN);
    std::FILE* file = std::tmpfile();
    std::FILE* err = std::tmpfile();
    REQUIRE(file != nullptr);
    REQUIRE(err != nullptr);
    rlimit whole{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &whole) == 0);
    {
        Console console(file, Console::Loss::tolerated, err);
        console.line("first");
        const rlimit no_more{.rlim_cur = 6, .rlim_max = whole.rlim_max};  // the file's bytes: its disk is full
        REQUIRE(setrlimit(RLIMIT_FSIZE, &no_more) == 0);
        console.line("second");
        REQUIRE(setrlimit(RLIMIT_FSIZE, &whole) == 0);
        console.line("third");
    }
    CHECK(contents(file) == "first\nthird\n");
    CHECK_THAT(contents(err), Contains("File too large") && Contains("standard output: 1;"));
    std::fclose(file);
    std::fclose(err);
    std::signal(SIGXFSZ, no_signal);
}
