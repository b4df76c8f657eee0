// The factor of an inverse against its definition, in double.
#include "src/quantize/inverse_factor.h"

#include <cmath>
#include <limits>
#include <random>

#include "tests/catch.h"
#include "tests/quantize/random_inputs.h"

using namespace coda;
using namespace coda::test;

namespace {

/// The largest element of (Uᵀ U)(H + damping I) - I.
double residue(const std::vector<float>& u, const std::vector<double>& damped, std::int64_t n) {
    const auto at = [n](const auto& matrix, std::int64_t i, std::int64_t j) {
        return static_cast<double>(matrix[static_cast<std::size_t>(i * n + j)]);
    };
    double most = 0;
    for (std::int64_t j = 0; j < n; ++j) {
        std::vector<double> product(static_cast<std::size_t>(n));  // U (H + damping I), column j
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t k = i; k < n; ++k) product[static_cast<std::size_t>(i)] += at(u, i, k) * at(damped, k, j);
        for (std::int64_t i = 0; i < n; ++i) {
            double sum = i == j ? -1 : 0;
            for (std::int64_t k = 0; k <= i; ++k) sum += at(u, k, i) * product[static_cast<std::size_t>(k)];
            most = std::max(most, std::abs(sum));
        }
    }
    return most;
}

}  // namespace

TEST_CASE("Uᵀ U is the inverse of the damped products, for any number of columns") {
    for (const std::int64_t n : {1, 2, 63, 64, 65, 128, 200, 330}) {
        std::vector<float> h = products_of(random_inputs(2 * n + 3, n, 7), n);
        const std::int64_t dead = n / 2;  // never has an input
        if (n > 2)
            for (std::int64_t i = 0; i < n; ++i)
                h[static_cast<std::size_t>(i * n + dead)] = h[static_cast<std::size_t>(dead * n + i)] = 0;
        double mean = 0;
        for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(h[static_cast<std::size_t>(i * n + i)]) / n;
        std::vector<double> damped(h.begin(), h.end());
        for (std::int64_t i = 0; i < n; ++i) {
            double& diagonal = damped[static_cast<std::size_t>(i * n + i)];
            diagonal = (diagonal == 0 ? 1 : diagonal) + 0.01 * mean;
        }
        // Only the upper triangle is read.
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < i; ++j)
                h[static_cast<std::size_t>(i * n + j)] = std::numeric_limits<float>::quiet_NaN();
        const std::vector<float> u = inverse_factor(h, n);
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < i; ++j) REQUIRE(u[static_cast<std::size_t>(i * n + j)] == 0);
        CAPTURE(n);
        // Elements of U are rounded to fp32, and the condition is at most 100 n: 2^-24 of sums of n terms.
        CHECK(residue(u, damped, n) < 1e-4);
    }
}

TEST_CASE("products that are not finite are refused") {
    std::vector<float> h = products_of(random_inputs(40, 16, 3), 16);
    h[5] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH(inverse_factor(h, 16), Catch::Contains("not finite"));
}
