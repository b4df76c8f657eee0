// The table of rotary angles against the formula, element by element.
#include <algorithm>
#include <cmath>

#include "src/model/schedules.h"
#include "src/model/tensors/shape.h"
#include "tests/catch.h"
#include "tests/tiny_model.h"

using namespace coda;

TEST_CASE("a model with learned positions turns nothing") {
    ModelConfig model = test::tiny_model();
    model.position_embeddings = PositionEmbeddings::learned;
    const std::vector<double> table = rope_table(model, 7);
    REQUIRE(table.size() == static_cast<std::size_t>(7 * model.head_dim));
    for (std::size_t i = 0; i < table.size(); ++i) CHECK(table[i] == (i % 2 == 0 ? 1 : 0));

    // LinearRope then rotates no column. Where heads have a norm it does, since it norms the columns that it rotates.
    CHECK(model_shape(model, 7, 1).rotated == 0);
    model.qk_norm = true;
    CHECK(model_shape(model, 7, 1).rotated == (model.num_attention_heads + model.num_key_value_heads) * model.head_dim);
}

// Qwen2.5 for long texts: pairs up to 23 turn 32 times in 32768 positions, those from 40 on less than once. 23 is
// floor(128 ln(32768 / (32 2 pi)) / (2 ln 1e6)) = floor(23.6), 40 is ceil(128 ln(32768 / (2 pi)) / (2 ln 1e6)) =
// ceil(39.7). The attention factor is 0.1 ln 4 + 1.
TEST_CASE("yarn keeps fast pairs, slows slow ones by the factor, and multiplies cos and sin") {
    ModelConfig model = test::tiny_model();
    model.head_dim = 128;
    model.rope_theta = 1e6;
    model.rope_scaling = RopeScaling{.factor = 4, .original_max_position_embeddings = 32768, .type = RopeType::yarn};
    const auto check = [&](double first, double last, double factor) {
        const std::vector<double> table = rope_table(model, 3);
        for (std::size_t pair = 0; pair < 64; ++pair) {
            const double place = static_cast<double>(pair);
            const double ramp = std::min(std::max((place - first) / (last - first), 0.0), 1.0);
            const double plain = std::pow(1e6, -place / 64), angle = 2 * plain * (1 - ramp + ramp / 4);
            INFO(pair);
            CHECK(table[256 + 2 * pair] == Approx(factor * std::cos(angle)).epsilon(1e-14));
            CHECK(table[256 + 2 * pair + 1] == Approx(factor * std::sin(angle)).epsilon(1e-14));
        }
    };
    check(23, 40, 1.1386294361119891);
    RopeScaling& scaling = *model.rope_scaling;
    scaling.truncate = false;
    check(64 * std::log(32768 / (64 * std::acos(-1.0))) / std::log(1e6),
          64 * std::log(32768 / (2 * std::acos(-1.0))) / std::log(1e6), 1.1386294361119891);
    scaling.truncate = true;
    scaling.mscale = 0.707;
    check(23, 40, 1.1386294361119891);  // one of the two by itself has no meaning
    scaling.mscale_all_dim = 1;
    check(23, 40, (0.0707 * std::log(4.0) + 1) / 1.1386294361119891);
    scaling.mscale = 1;
    check(23, 40, 1);  // as DeepSeek has it
    scaling.attention_factor = 0.75;
    check(23, 40, 0.75);
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
