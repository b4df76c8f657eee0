#include "src/generate/prompt_lookup.h"

#include <random>

#include "tests/catch.h"

using namespace coda;
using Tokens = std::vector<std::int32_t>;

namespace {

/// Word for word: of all earlier places the one that agrees for longest, the last of these.
Tokens by_definition(const Tokens& tokens, std::size_t most) {
    const auto agree = [&](std::size_t place, std::size_t count) {
        return count <= place && std::equal(tokens.end() - static_cast<std::ptrdiff_t>(count), tokens.end(),
                                            tokens.begin() + static_cast<std::ptrdiff_t>(place - count));
    };
    for (std::size_t count = kMostCompared; count >= 1; --count)
        for (std::size_t place = tokens.size() - 1; place >= count; --place) {
            if (count >= tokens.size() || !agree(place, count)) continue;
            Tokens continued = tokens;  // what is guessed counts as said
            for (std::size_t i = 0; i < most; ++i) continued.push_back(Tokens(continued)[place + i]);
            return {continued.end() - static_cast<std::ptrdiff_t>(most), continued.end()};
        }
    return {};
}

}  // namespace

TEST_CASE("a guess follows the longest agreement, the latest of equal ones, and repeats what ends too soon") {
    CHECK(guess_next(Tokens{1, 2, 3}, 4).empty());
    CHECK(guess_next(Tokens{1}, 4).empty());
    CHECK(guess_next(Tokens{7, 7}, 3) == Tokens{7, 7, 7});
    CHECK(guess_next(Tokens{1, 2, 3, 9, 1, 2}, 3) == Tokens{3, 9, 1});
    CHECK(guess_next(Tokens{5, 1, 2, 3, 2, 4, 1, 2}, 2) == Tokens{3, 2});  // "1 2" stands before the later "2"
    CHECK(guess_next(Tokens{2, 3, 2, 4, 2}, 2) == Tokens{4, 2});
    CHECK(guess_next(Tokens{1, 2, 1, 2}, 5) == Tokens{1, 2, 1, 2, 1});
    CHECK(guess_next(Tokens{1, 1}, 0).empty());
}

TEST_CASE("guesses are as defined, for texts that repeat a little and a lot") {
    std::mt19937 random(3);
    for (int i = 0; i < 3000; ++i) {
        const auto length = 1 + random() % 60, kinds = 1 + random() % 5;
        Tokens tokens;
        for (std::size_t j = 0; j < length; ++j) tokens.push_back(static_cast<std::int32_t>(random() % kinds));
        const std::size_t most = random() % 9;
        CAPTURE(tokens, most);
        REQUIRE(guess_next(tokens, static_cast<std::int64_t>(most)) == by_definition(tokens, most));
    }
}
