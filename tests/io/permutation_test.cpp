#include "src/io/permutation.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "tests/catch.h"

using namespace coda;

TEST_CASE("a permutation hits every element once") {
    for (std::int64_t count = 1; count <= 300; ++count) {
        const Permutation permutation(count, 1337, 5);
        std::vector<bool> hit(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t to = permutation(i);
            REQUIRE((to >= 0 && to < count));
            REQUIRE_FALSE(hit[static_cast<std::size_t>(to)]);
            hit[static_cast<std::size_t>(to)] = true;
        }
    }
}

TEST_CASE("a permutation of a huge range stays within it and does not repeat") {
    const std::int64_t count = (std::int64_t{1} << 62) - 1;
    const Permutation permutation(count, 1, 2);
    for (std::int64_t i = 0; i < 100; ++i) {
        const std::int64_t to = permutation(count - 1 - i);
        CHECK((to >= 0 && to < count));
        CHECK(to != permutation(i));
    }
}

TEST_CASE("key and stream each choose the order") {
    const auto differing = [](const Permutation& a, const Permutation& b) {
        int different = 0;
        for (std::int64_t i = 0; i < 1000; ++i) different += a(i) != b(i);
        return different;
    };
    const Permutation permutation(1000, 7, 0);
    CHECK(differing(permutation, Permutation(1000, 7, 0)) == 0);
    CHECK(differing(permutation, Permutation(1000, 7, 1)) > 900);
    CHECK(differing(permutation, Permutation(1000, 8, 0)) > 900);
}

// Pearson's statistic over `count` cells has mean count - 1 and variance 2 (count - 1) when every place is equally
// likely; the bound is six standard deviations above the mean.
TEST_CASE("over the streams every place is equally likely") {
    for (const std::int64_t count : {5, 16, 37, 100}) {
        for (const std::int64_t index : {std::int64_t{0}, count / 2, count - 1}) {
            const std::int64_t draws = 200 * count;
            std::vector<double> hits(static_cast<std::size_t>(count));
            for (std::int64_t stream = 0; stream < draws; ++stream)
                hits[static_cast<std::size_t>(Permutation(count, 99, static_cast<std::uint64_t>(stream))(index))] += 1;
            double chi_squared = 0;
            for (const double hit : hits) chi_squared += (hit - 200) * (hit - 200) / 200;
            const double freedom = static_cast<double>(count - 1);
            INFO(count << " elements, element " << index << ": " << chi_squared);
            CHECK(chi_squared < freedom + 6 * std::sqrt(2 * freedom));
        }
    }
}

// For a random order the mean of |p(i + 1) - p(i)| is (count + 1) / 3 and its standard deviation, over `count` weakly
// dependent terms of deviation below count / 4, about sqrt(count) / 4; the bound is eight of these.
TEST_CASE("neighbours are spread") {
    const std::int64_t count = 10000;
    const Permutation permutation(count, 3, 0);
    double sum = 0;
    for (std::int64_t i = 0; i + 1 < count; ++i)
        sum += static_cast<double>(std::llabs(permutation(i + 1) - permutation(i)));
    CHECK(sum / (count - 1) == Approx((count + 1) / 3.0).margin(8 * std::sqrt(count) / 4).epsilon(0));
}
