// The integers of a choice: masses against exp2, keys against the order of floats, products and draws.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/math/sampling.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::sampling;

namespace {

__extension__ using Wide = unsigned __int128;

/// The bound of mass_of's comment, and the rounding down to an integer.
double allowed(double exact) { return exact * 3 * 0x1p-24 + 1; }

double exact_mass(float distance, float scale) {
    return std::exp2(40 - static_cast<double>(distance) * static_cast<double>(scale));
}

}  // namespace

TEST_CASE("a mass is 2^40 2^-x to 3 2^-24 of itself, at every 24-bit fraction") {
    double worst = 0;
    for (int k = 0; k < 1 << 24; ++k) {
        const auto distance = static_cast<float>(k) * 0x1p-24f;
        const double exact = exact_mass(distance, 1);
        const std::uint64_t mass = mass_of(distance, 1);
        worst = std::max(worst, std::fabs(static_cast<double>(mass) - exact) / allowed(exact));
    }
    CHECK(worst <= 1);
    CHECK(worst > 0.3);  // the bound is not idle
}

TEST_CASE("a mass keeps its bound at any distance and temperature") {
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> exponent(-20, 20), product(0, 41);
    double worst = 0;
    for (int i = 0; i < 2000000; ++i) {
        const auto scale = static_cast<float>(std::exp2(exponent(random)));
        auto distance = static_cast<float>(product(random) / static_cast<double>(scale));
        // Around whole products, where rounding may carry the whole part over.
        if (i % 4 == 0) distance = static_cast<float>(std::round(product(random)) / static_cast<double>(scale));
        const double exact = exact_mass(distance, scale);
        const std::uint64_t mass = mass_of(distance, scale);
        REQUIRE(mass <= kOne);
        worst = std::max(worst, std::fabs(static_cast<double>(mass) - exact) / allowed(exact));
    }
    CHECK(worst <= 1);
}

TEST_CASE("masses at the limits") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
    for (const float scale : {0.0f, 1.0f, kMax}) CHECK(mass_of(0, scale) == kOne);
    CHECK(mass_of(1, 1) == kOne / 2);
    CHECK(mass_of(40, 1) == 1);
    CHECK(mass_of(41, 1) == 0);
    CHECK(mass_of(std::nextafter(40.0f, 41.0f), 1) == 0);
    CHECK(mass_of(kMax, kMax) == 0);
    CHECK(mass_of(kInfinity, 1) == 0);
    // The smallest temperature that there is leaves equal logits equal.
    const Rules rules = rules_of({.temperature = std::numeric_limits<float>::denorm_min()});
    CHECK(std::isfinite(rules.scale));
    CHECK(mass_of(0, rules.scale) == kOne);
    CHECK(mass_of(1e-6f, rules.scale) == 0);
}

TEST_CASE("keys have the order of floats and lead back to them") {
    std::vector<float> values = {-std::numeric_limits<float>::max(), -1e4f, -1, -1e-40f, 0, 1e-40f, 1, 1e4f,
                                 std::numeric_limits<float>::max()};
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal(0, 30);
    for (int i = 0; i < 1000; ++i) values.push_back(normal(random));
    for (const float a : values) {
        CHECK(value_of(key_of(a)) == a);
        CHECK(key_of(a) > 0);  // Cut{} keeps every token
        for (const float b : values) REQUIRE((key_of(a) < key_of(b)) == (a < b));
    }
}

TEST_CASE("a penalty divides positive logits, multiplies the others, and stays finite") {
    constexpr float kMax = std::numeric_limits<float>::max();
    const Rules rules = rules_of({.repetition_penalty = 2});
    CHECK(penalised(3, true, rules) == 1.5f);
    CHECK(penalised(-3, true, rules) == -6.0f);
    CHECK(penalised(3, false, rules) == 3.0f);
    CHECK(penalised(-kMax, true, rules) == -kMax);
    CHECK(penalised(kMax, true, rules_of({.repetition_penalty = 1e-30f})) == kMax);
    CHECK(penalised(1e-3f, true, rules_of({.repetition_penalty = std::numeric_limits<float>::denorm_min()})) == kMax);
    for (const bool seen : {false, true}) CHECK(key_of(penalised(-0.0f, seen, rules)) == key_of(0.0f));
}

TEST_CASE("products of two words, goals and points") {
    std::mt19937_64 random(7);
    for (int i = 0; i < 100000; ++i) {
        const std::uint64_t a = random() >> random() % 64, b = random() >> random() % 64;
        const Wide exact = static_cast<Wide>(a) * b;
        const Product product = product_of(a, b);
        REQUIRE(product.high == static_cast<std::uint64_t>(exact >> 64));
        REQUIRE(product.low == static_cast<std::uint64_t>(exact));
        // The least sum with sum 2^40 >= total p, and at least 1.
        const std::uint64_t total = a >> 1, part = b % kOne, goal = target_of(total, part);
        REQUIRE((static_cast<Wide>(goal) << 40) >= static_cast<Wide>(total) * part);
        REQUIRE((goal == 1 || (static_cast<Wide>(goal - 1) << 40) < static_cast<Wide>(total) * part));
        if (total == 0) continue;
        const std::uint64_t draw = random() >> 11;
        REQUIRE(point_of(draw, total) == static_cast<std::uint64_t>((static_cast<Wide>(draw) * total) >> 53));
        REQUIRE(point_of((std::uint64_t{1} << 53) - 1, total) < total);
    }
}

TEST_CASE("options as integers") {
    CHECK(rules_of({}).top_p == kOne);
    CHECK(rules_of({.top_p = 0.5f}).top_p == kOne / 2);
    CHECK(rules_of({.min_p = 1}).min_mass == kOne);
    CHECK(rules_of({}).min_mass == 0);
    CHECK(rules_of({.min_p = 1e-20f}).min_mass == 1);  // rounded up: a mass of 0 is less than any part
    CHECK(rules_of({.temperature = 0}).greedy);
    CHECK_FALSE(rules_of({.temperature = 1e-30f}).greedy);
}
