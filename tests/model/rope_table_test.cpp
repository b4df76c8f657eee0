// The table of rotary angles against the formula, element by element.
#include <cmath>

#include "src/model/schedules.h"
#include "tests/catch.h"
#include "tests/tiny_model.h"

using namespace coda;

TEST_CASE("a model with learned positions turns nothing") {
    ModelConfig model = test::tiny_model();
    model.position_embeddings = PositionEmbeddings::learned;
    const std::vector<double> table = rope_table(model, 7);
    REQUIRE(table.size() == static_cast<std::size_t>(7 * model.head_dim));
    for (std::size_t i = 0; i < table.size(); ++i) CHECK(table[i] == (i % 2 == 0 ? 1 : 0));
}

TEST_CASE("linear RoPE scaling divides every frequency by the factor") {
    ModelConfig model = test::tiny_model();
    model.rope_theta = 10000;
    model.rope_scaling = RopeScaling{.factor = 4, .type = RopeType::linear};
    constexpr std::int64_t kPositions = 300;
    const std::vector<double> table = rope_table(model, kPositions);
    for (std::int64_t position = 0; position < kPositions; ++position) {
        for (std::int64_t pair = 0; pair < model.head_dim / 2; ++pair) {
            const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(model.head_dim);
            const double angle = static_cast<double>(position) * (std::pow(10000.0, exponent) / 4.0);
            const auto at = static_cast<std::size_t>(position * model.head_dim + 2 * pair);
            INFO(position << " " << pair);
            REQUIRE(table[at] == std::cos(angle));
            REQUIRE(table[at + 1] == std::sin(angle));
        }
    }
}
