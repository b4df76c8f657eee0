// Inputs of a matrix that hang together, as a model's do.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace coda::test {

/// (m, n): every column is a mixture of a few hidden ones and noise.
inline std::vector<float> random_inputs(std::int64_t m, std::int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    constexpr std::int64_t kHidden = 12;
    std::vector<float> mixture(static_cast<std::size_t>(kHidden * n)), x(static_cast<std::size_t>(m * n));
    for (float& value : mixture) value = normal(random);
    for (std::int64_t row = 0; row < m; ++row) {
        float hidden[kHidden];
        for (float& value : hidden) value = normal(random);
        for (std::int64_t j = 0; j < n; ++j) {
            float& value = x[static_cast<std::size_t>(row * n + j)];
            value = 0.5F * normal(random);
            for (std::int64_t k = 0; k < kHidden; ++k)
                value += 0.3F * hidden[k] * mixture[static_cast<std::size_t>(k * n + j)];
        }
    }
    return x;
}

/// Σ x xᵀ, (n, n).
inline std::vector<float> products_of(const std::vector<float>& x, std::int64_t n) {
    std::vector<double> sums(static_cast<std::size_t>(n * n));
    for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(n))
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < n; ++j)
                sums[static_cast<std::size_t>(i * n + j)] += static_cast<double>(x[row + static_cast<std::size_t>(i)]) *
                                                             static_cast<double>(x[row + static_cast<std::size_t>(j)]);
    return {sums.begin(), sums.end()};
}

}  // namespace coda::test
