// The choice of a token against the definition written down plainly: a sorted list and its sums.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "kernels/ops/choose_token/choose.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::sampling;

namespace {

__extension__ using Wide = unsigned __int128;

std::vector<int> order_of(const std::vector<float>& logits) {
    std::vector<int> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    return ids;
}

/// The definition in double: probabilities by std::exp, thresholds by sums over the sorted list. The weights of the
/// tokens that stay, 0 for all others.
std::vector<double> kept_weights(const std::vector<float>& logits, const ChoiceOptions& options, double top_p,
                                 double min_p) {
    const std::vector<int> order = order_of(logits);
    const auto weight = [&](int id) {
        const double distance = static_cast<double>(logits[static_cast<std::size_t>(id)]) -
                                static_cast<double>(logits[static_cast<std::size_t>(order[0])]);
        return std::exp(distance / static_cast<double>(options.temperature));
    };
    std::size_t stay = order.size();
    if (options.top_k > 0) stay = std::min(stay, static_cast<std::size_t>(options.top_k));
    double total = 0;
    for (std::size_t i = 0; i < stay; ++i) total += weight(order[i]);
    if (top_p < 1) {
        double sum = 0;
        std::size_t i = 0;
        while (i < stay && (i == 0 || sum < top_p * total)) sum += weight(order[i++]);
        stay = i;
    }
    std::vector<double> kept(logits.size(), 0);
    for (std::size_t i = 0; i < stay; ++i)
        if (weight(order[i]) >= min_p) kept[static_cast<std::size_t>(order[i])] = weight(order[i]);
    return kept;
}

int token_at(const std::vector<double>& weights, double uniform) {
    const double point = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0;
    for (std::size_t id = 0; id < weights.size(); ++id) {
        sum += weights[id];
        if (sum > point) return static_cast<int>(id);
    }
    return -1;
}

/// The token in double, where no threshold is so close that the fixed point could decide otherwise. Masses are off by
/// 2^-22 of themselves and 2^-40 of the largest: less than 1e-6 of any sum here.
std::optional<int> token_in_double(const std::vector<float>& logits, const ChoiceOptions& options, double uniform) {
    constexpr double kNear = 1e-6;
    std::optional<int> token;
    for (const double side : {-kNear, kNear}) {
        const double p = static_cast<double>(options.top_p), least = static_cast<double>(options.min_p);
        for (const double point : {uniform - kNear, uniform + kNear}) {
            const std::vector<double> weights =
                kept_weights(logits, options, p < 1 ? p + side : p, least * (1 + side) + std::min(side, 0.0) * 1e-3);
            const int found = token_at(weights, std::max(point, 0.0));
            if (token && *token != found) return std::nullopt;
            token = found;
        }
    }
    return token;
}

/// The definition in integers, by sorting: exact.
int token_in_integers(const std::vector<float>& logits, const ChoiceOptions& options, std::uint64_t draw) {
    const Rules rules = rules_of(options);
    const std::vector<int> order = order_of(logits);
    const float largest = logits[static_cast<std::size_t>(order[0])];
    const auto mass = [&](int id) { return mass_of(largest - logits[static_cast<std::size_t>(id)], rules.scale); };
    std::size_t stay = order.size();
    if (rules.top_k > 0) stay = std::min<std::size_t>(stay, rules.top_k);
    if (rules.top_p < kOne) {
        Wide total = 0, sum = 0;
        for (std::size_t i = 0; i < stay; ++i) total += mass(order[i]);
        std::size_t i = 0;
        while (i == 0 || sum << 40 < total * rules.top_p) sum += mass(order[i++]);
        stay = i;
    }
    std::vector<std::uint64_t> kept(logits.size(), 0);
    Wide total = 0;
    for (std::size_t i = 0; i < stay; ++i)
        if (mass(order[i]) >= rules.min_mass) total += kept[static_cast<std::size_t>(order[i])] = mass(order[i]);
    const Wide point = total * draw >> 53;
    Wide sum = 0;
    for (std::size_t id = 0; id < kept.size(); ++id)
        if ((sum += kept[id]) > point) return static_cast<int>(id);
    return -1;
}

/// Rows of every kind: few and many tokens, flat, with ties, with one large logit, of size 1e4, rounded to bf16.
std::vector<float> random_row(std::mt19937_64& random) {
    const int sizes[] = {1, 2, 3, 31, 32, 33, 64, 100, 257, 1000};
    std::vector<float> row(static_cast<std::size_t>(sizes[random() % 10]));
    const double spread = std::array{0.0, 0.5, 3.0, 30.0, 1e4}[random() % 5];
    const int kind = static_cast<int>(random() % 4);
    std::normal_distribution<double> normal(0, 1);
    for (float& logit : row) {
        const double value = spread * normal(random);
        logit = static_cast<float>(kind == 0 ? std::round(value) : value);
        if (kind == 1) logit = static_cast<float>(Bf16(logit));
        logit += 0.0f;  // as penalised() leaves it: never -0
    }
    if (kind == 2) row[random() % row.size()] = 1e4f;
    return row;
}

ChoiceOptions random_options(std::mt19937_64& random, bool top_k, bool top_p, bool min_p) {
    ChoiceOptions options;
    options.temperature = std::array{0.05f, 0.7f, 1.0f, 1.0f, 2.5f, 100.0f}[random() % 6];
    if (top_k) options.top_k = std::array{1, 2, 5, 40, 5000}[random() % 5];
    if (top_p) options.top_p = std::array{0.0f, 0.1f, 0.5f, 0.9f, 0.99f, 0.999999f}[random() % 6];
    if (min_p) options.min_p = std::array{1e-9f, 0.01f, 0.1f, 0.5f, 1.0f}[random() % 5];
    return options;
}

std::int32_t choose_with(const std::vector<float>& row, const ChoiceOptions& options, std::uint64_t draw) {
    return choose(row, rules_of(options), draw);
}

/// The tokens that can come, over an even grid of draws.
std::vector<int> possible(const std::vector<float>& row, const ChoiceOptions& options, int points = 4096) {
    std::map<int, int> counts;
    for (int i = 0; i < points; ++i)
        ++counts[choose_with(row, options,
                             (std::uint64_t{1} << 53) / static_cast<unsigned>(points) * static_cast<unsigned>(i))];
    std::vector<int> ids;
    for (const auto& [id, count] : counts) ids.push_back(id);
    return ids;
}

}  // namespace

TEST_CASE("a choice is the sorted definition's: each rule by itself and all together") {
    std::mt19937_64 random(11);
    int compared = 0, near = 0;
    for (int rules = 0; rules < 8; ++rules)
        for (int i = 0; i < 1500; ++i) {
            const std::vector<float> row = random_row(random);
            const ChoiceOptions options = random_options(random, rules & 1, rules & 2, rules & 4);
            std::uint64_t draw = random() >> 11;
            if (i % 50 == 0) draw = 0;
            if (i % 50 == 1) draw = (std::uint64_t{1} << 53) - 1;
            const std::int32_t token = choose_with(row, options, draw);
            INFO(row.size() << " tokens, temperature " << options.temperature << ", top_k " << options.top_k
                            << ", top_p " << options.top_p << ", min_p " << options.min_p << ", draw " << draw);
            REQUIRE(token == token_in_integers(row, options, draw));
            const std::optional<int> expected = token_in_double(row, options, static_cast<double>(draw) * 0x1p-53);
            ++compared;
            near += !expected;
            if (expected) REQUIRE(token == *expected);
        }
    // Flat rows put thresholds on sums exactly.
    CHECK(near * 5 < compared);
}

TEST_CASE("the greedy choice is the largest logit, of equal ones the lowest id") {
    std::mt19937_64 random(13);
    for (int i = 0; i < 2000; ++i) {
        const std::vector<float> row = random_row(random);
        const auto largest = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
        const std::uint64_t draw = random() >> 11;
        ChoiceOptions options = random_options(random, true, true, true);
        options.temperature = 0;
        REQUIRE(choose_with(row, options, draw) == largest);
        // So do the narrowest of the other rules.
        REQUIRE(choose_with(row, {.top_k = 1}, draw) == largest);
        REQUIRE(choose_with(row, {.top_p = 0}, draw) == largest);
        REQUIRE(row[static_cast<std::size_t>(choose_with(row, {.min_p = 1}, draw))] ==
                row[static_cast<std::size_t>(largest)]);
    }
}

TEST_CASE("equal logits at the border: as many stay as the rule needs, the lowest ids") {
    const std::vector<float> flat(8, 0.1f);
    CHECK(possible(flat, {.top_k = 3}) == std::vector<int>{0, 1, 2});
    CHECK(possible(flat, {.top_p = 0.5f}) == std::vector<int>{0, 1, 2, 3});  // exactly half is enough
    CHECK(possible(flat, {.top_p = 0.51f}) == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(possible(flat, {.top_p = 0}) == std::vector<int>{0});
    CHECK(possible(flat, {.min_p = 1}) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
    const std::vector<float> row = {0, 1, 1, 2, 1, -5};
    CHECK(possible(row, {.top_k = 2}) == std::vector<int>{1, 3});
    CHECK(possible(row, {.top_k = 3}) == std::vector<int>{1, 2, 3});
    CHECK(possible(row, {.top_k = 6}) == std::vector<int>{0, 1, 2, 3, 4, 5});
    CHECK(possible(row, {.min_p = 0.3f}) == std::vector<int>{1, 2, 3, 4});  // 1 / e is 0.37
    // Top-p is of the sum that top-k leaves: e^2 / (e^2 + 2 e) is 0.58, of all it is 0.43.
    CHECK(possible(row, {.top_k = 3, .top_p = 0.57f}) == std::vector<int>{3});
    CHECK(possible(row, {.top_p = 0.57f}) == std::vector<int>{1, 3});
}

TEST_CASE("the ends of the draws choose tokens that can be chosen") {
    constexpr std::uint64_t kLast = (std::uint64_t{1} << 53) - 1;
    const std::vector<float> row = {-800, 1, 0, -800};
    CHECK(choose_with(row, {}, 0) == 1);
    CHECK(choose_with(row, {}, kLast) == 2);
    CHECK(choose_with(std::vector<float>(1000, 0.1f), {}, kLast) == 999);
    CHECK(choose_with({3}, {.top_k = 7, .top_p = 0.1f, .min_p = 1}, kLast) == 0);
    CHECK_THROWS(choose_with({}, {}, 0));
}

// The sum of (found - expected)² / expected over n + 1 classes has mean n and standard deviation sqrt(2 n); 5 of them.
TEST_CASE("10^5 draws have the frequencies of the definition") {
    std::mt19937_64 random(17);
    constexpr int kDraws = 100000;
    std::vector<float> row(300);
    std::normal_distribution<float> normal(0, 2);
    for (float& logit : row) logit = normal(random);
    for (const ChoiceOptions options :
         {ChoiceOptions{}, ChoiceOptions{.temperature = 0.7f, .top_k = 40},
          ChoiceOptions{.temperature = 1.3f, .top_p = 0.9f}, ChoiceOptions{.temperature = 1.5f, .min_p = 0.05f},
          ChoiceOptions{.temperature = 0.9f, .top_k = 100, .top_p = 0.95f, .min_p = 0.01f, .seed = 3}}) {
        const std::vector<double> weights =
            kept_weights(row, options, static_cast<double>(options.top_p), static_cast<double>(options.min_p));
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        std::vector<int> counts(row.size(), 0);
        for (int i = 0; i < kDraws; ++i)
            ++counts[static_cast<std::size_t>(choose_with(row, options, draw_of(options.seed, i)))];
        double chi_square = 0, rest = 0;
        int classes = 0, rest_count = 0;
        for (std::size_t id = 0; id < row.size(); ++id) {
            const double expected = kDraws * weights[id] / sum;
            if (weights[id] == 0) CHECK(counts[id] == 0);
            if (expected < 20) {  // rare tokens are one class
                rest += expected;
                rest_count += counts[id];
                continue;
            }
            chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
            ++classes;
        }
        if (rest > 5) {
            chi_square += (rest_count - rest) * (rest_count - rest) / rest;
            ++classes;
        }
        REQUIRE(classes > 5);
        INFO("chi-square " << chi_square << " of " << classes << " classes");
        CHECK(chi_square < classes - 1 + 5 * std::sqrt(2.0 * (classes - 1)));
        CHECK(chi_square > classes - 1 - 5 * std::sqrt(2.0 * (classes - 1)));
    }
}
