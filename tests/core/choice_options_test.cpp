#include "src/core/choice_options.h"

#include <cmath>
#include <limits>

#include "src/core/errors.h"
#include "tests/catch.h"

using namespace coda;
using Catch::Contains;

TEST_CASE("options of a choice that are valid") {
    CHECK_FALSE(choice_problem({}));
    CHECK_FALSE(choice_problem({.temperature = 0, .top_k = 0, .top_p = 0, .min_p = 1, .repetition_penalty = 0.5f}));
}

TEST_CASE("an option of a choice that is not valid is named with its value and what it must be") {
    const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
    const auto option = [](const ChoiceOptions& options) { return choice_problem(options).value().option; };
    for (const float value : {-0.1f, nan, infinity}) CHECK(option({.temperature = value}) == "temperature");
    CHECK(option({.top_k = -1}) == "top_k");
    for (const float value : {-0.1f, 1.01f, nan}) {
        CHECK(option({.top_p = value}) == "top_p");
        CHECK(option({.min_p = value}) == "min_p");
    }
    for (const float value : {0.0f, -1.0f, nan, infinity})
        CHECK(option({.repetition_penalty = value}) == "repetition_penalty");

    CHECK_THROWS_AS(require_choice_options({.top_p = 1.5f}, "--"), UsageError);
    CHECK_THROWS_WITH(require_choice_options({.top_p = 1.5f}, "--"),
                      "--top-p: is 1.5, must be a number from 0 to 1 (1: every token)");
    CHECK_THROWS_WITH(require_choice_options({.repetition_penalty = 0}, "prompts.jsonl:3: "),
                      Contains("prompts.jsonl:3: repetition_penalty: is 0"));
    CHECK_NOTHROW(require_choice_options({}, "--"));
}
