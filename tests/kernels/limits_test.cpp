#include "kernels/core/limits.h"

#include "tests/catch.h"

using namespace coda;

TEST_CASE("values at a limit are taken, and one past it is refused with its name") {
    for (const int head_dim : limits::kHeadDims) CHECK(!limits::head_dim_problem("head_dim", head_dim));
    CHECK(limits::head_dim_problem("head_dim", 96) == "the GPU's attention has heads of 64 or 128, and head_dim is 96");
    CHECK(!limits::width_problem("width", 8));
    CHECK(limits::width_problem("width", 0));
    CHECK(limits::width_problem("width", 12) == "the GPU's kernels need a width that is a multiple of 8, and it is 12");

    const auto bounded = [](const auto& problem, std::int64_t most) {
        CHECK(!problem("field", most));
        const std::string message = problem("field", most + 1).value_or("");
        CHECK_THAT(message, Catch::Contains(std::to_string(most) + " "));
        CHECK_THAT(message, Catch::Contains("field is " + std::to_string(most + 1)));
    };
    bounded(limits::layers_problem, 127);
    bounded(limits::tokens_problem, 2147483391);
    bounded(limits::tiles_problem, 2147418111);
    bounded(limits::head_rows_problem, 2147483647);
    bounded(limits::heads_problem, 65535);
    bounded(limits::group_problem, 16);
    bounded(limits::context_problem, 2147483391);
}

TEST_CASE("tiles of attention are counted in 64 bits") {
    CHECK(limits::attention_tiles(3, 5, 384, 192) == 30);
    CHECK(limits::attention_tiles(3, 5, 385, 192) == 45);
    CHECK(limits::attention_tiles(std::int64_t{1} << 30, 65536, 1, 192) == std::int64_t{1} << 46);
}

TEST_CASE("a kernel's refusal begins with the op") {
    CHECK_NOTHROW(limits::require_none("Attention", std::nullopt));
    CHECK_THROWS_WITH(limits::require_none("Attention", limits::heads_problem("heads", 70000)),
                      "Attention: the GPU's attention takes up to 65535 heads, and heads is 70000");
}
