#include "src/generate/stop_texts.h"

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "tests/catch.h"

using namespace coda;

namespace {

/// The text that is left of `whole`, and whether it was stopped: by the definition, over all ends and stop texts.
std::pair<std::string, bool> by_definition(const std::string& whole, const std::vector<std::string>& stops) {
    for (std::size_t end = 1; end <= whole.size(); ++end) {
        std::optional<std::size_t> begin;
        for (const std::string& stop : stops) {
            if (stop.size() > end || whole.compare(end - stop.size(), stop.size(), stop) != 0) continue;
            begin = std::min(begin.value_or(end), end - stop.size());
        }
        if (begin) return {whole.substr(0, *begin), true};
    }
    return {whole, false};
}

}  // namespace

TEST_CASE("text that may become a stop text is held back, and no more") {
    StopTexts stop({"\n\n", "END"});
    CHECK(stop.add("abc") == "abc");
    CHECK(stop.add("d\n") == "d");
    CHECK(stop.add("e E") == "\ne ");
    CHECK(stop.add("N") == "");
    CHECK(stop.add("E") == "EN");
    CHECK_FALSE(stop.stopped());
    CHECK(stop.finish() == "E");
}

TEST_CASE("nothing of a stop text is given, within a piece and over several") {
    StopTexts inside({"stop"});
    CHECK(inside.add("go on stop here") == "go on ");
    CHECK(inside.stopped());
    CHECK(inside.add("more") == "");
    CHECK(inside.finish() == "");

    StopTexts across({"stop"});
    CHECK(across.add("s") == "");
    CHECK(across.add("sto") == "s");
    CHECK(across.add("p!") == "");
    CHECK(across.stopped());

    CHECK_THROWS_AS(StopTexts({"a", ""}), Error);
    StopTexts none;
    CHECK(none.add("anything") == "anything");
}

TEST_CASE("the result depends only on the text, not on its pieces") {
    std::mt19937 random(7);
    for (int round = 0; round < 20000; ++round) {
        const auto word = [&](unsigned most) {
            std::string text;
            for (unsigned n = 1 + random() % most; n > 0; --n) text += static_cast<char>('a' + random() % 2);
            return text;
        };
        std::vector<std::string> stops;
        for (unsigned n = random() % 4; n > 0; --n) stops.push_back(word(4));
        const std::string whole = word(12);
        StopTexts stream(stops);
        std::string given;
        for (std::size_t at = 0; at < whole.size();) {
            const std::size_t length = 1 + random() % 4;
            given += stream.add(whole.substr(at, length));
            at += length;
            // What is held back is no more than what may become a stop text.
            const std::string seen = whole.substr(0, at);
            if (!stream.stopped() && given.size() < seen.size()) {
                const std::string held = seen.substr(given.size());
                bool may_become = false;
                for (const std::string& stop : stops) may_become = may_become || stop.starts_with(held);
                REQUIRE(may_become);
            }
        }
        const bool stopped = stream.stopped();
        given += stream.finish();
        REQUIRE(std::pair(given, stopped) == by_definition(whole, stops));
    }
}
