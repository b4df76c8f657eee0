// GPTQ against its definition in double, one row and one column at a time, and against rounding to nearest.
#include "src/quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/math/int4.h"
#include "src/io/int4_matrix.h"
#include "src/quantize/inverse_factor.h"
#include "tests/catch.h"
#include "tests/quantize/random_inputs.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Rounded {
    std::vector<std::uint32_t> words;
    std::vector<Bf16> scales;

    Rounded(std::int64_t rows, std::int64_t cols)
        : words(static_cast<std::size_t>(rows * cols / 8)), scales(static_cast<std::size_t>(rows * cols / 128)) {}
    int number(std::int64_t element) const {
        return static_cast<int>(words[static_cast<std::size_t>(element / 8)] >> (4 * (element % 8)) & 15U) - 8;
    }
    double value(std::int64_t element) const {
        return number(element) * static_cast<double>(scales[static_cast<std::size_t>(element / 128)]);
    }
};

/// Σ over rows and inputs of the squared error of the products.
double error_of(const Rounded& rounded, const std::vector<float>& w, const std::vector<float>& x, std::int64_t n) {
    const std::int64_t rows = static_cast<std::int64_t>(w.size()) / n, m = static_cast<std::int64_t>(x.size()) / n;
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t t = 0; t < m; ++t) {
            double off = 0;
            for (std::int64_t k = 0; k < n; ++k)
                off += (rounded.value(row * n + k) - static_cast<double>(w[static_cast<std::size_t>(row * n + k)])) *
                       static_cast<double>(x[static_cast<std::size_t>(t * n + k)]);
            sum += off * off;
        }
    return sum;
}

}  // namespace

TEST_CASE("GPTQ makes the codes of its definition, with far smaller errors than rounding to nearest") {
    constexpr std::int64_t kRows = 21, kColumns = 384, kInputs = 700;
    const std::vector<float> x = random_inputs(kInputs, kColumns, 5);
    std::vector<float> w = random_inputs(kRows, kColumns, 9);
    std::fill_n(w.begin() + 3 * kColumns + 128, 128, 0.0F);  // a group of zeros
    const std::vector<float> u = inverse_factor(products_of(x, kColumns), kColumns);

    Rounded gptq(kRows, kColumns), nearest(kRows, kColumns);
    std::vector<float> changed = w;
    gptq_rows(changed, kColumns, u, gptq.words, gptq.scales);
    for (std::int64_t row = 0; row < kRows; ++row)
        quantize_row(std::span(w).subspan(static_cast<std::size_t>(row * kColumns), kColumns),
                     std::span(nearest.words).subspan(static_cast<std::size_t>(row * kColumns / 8), kColumns / 8),
                     std::span(nearest.scales).subspan(static_cast<std::size_t>(row * kColumns / 128), kColumns / 128));

    // Column k is rounded; then every later column j takes error u[k][j], with error = (w - q) / u[k][k].
    std::int64_t different = 0;
    for (std::int64_t row = 0; row < kRows; ++row) {
        std::vector<double> left(w.begin() + row * kColumns, w.begin() + (row + 1) * kColumns);
        double scale = 0;
        for (std::int64_t k = 0; k < kColumns; ++k) {
            if (k % 128 == 0) {
                const std::vector<float> group(left.begin() + k, left.begin() + k + 128);
                std::vector<float> weights;
                for (std::int64_t j = k; j < k + 128; ++j)
                    weights.push_back(1 / (u[static_cast<std::size_t>(j * kColumns + j)] *
                                           u[static_cast<std::size_t>(j * kColumns + j)]));
                scale = static_cast<double>(int4_scale_of(group, weights));
            }
            const double value = left[static_cast<std::size_t>(k)];
            const double q = std::clamp(std::nearbyint(value / scale), -8.0, 7.0);
            different += gptq.number(row * kColumns + k) != static_cast<int>(q) ? 1 : 0;
            const auto factor = [&](std::int64_t j) {
                return static_cast<double>(u[static_cast<std::size_t>(k * kColumns + j)]);
            };
            // The codes that were made, so that one that lay between two numbers does not change all that follow.
            const double error = (value - gptq.value(row * kColumns + k)) / factor(k);
            for (std::int64_t j = k + 1; j < kColumns; ++j) left[static_cast<std::size_t>(j)] -= error * factor(j);
        }
    }
    // fp32 in place of double: a value or a scale may lie on the other side of a bound.
    CHECK(different < kRows * kColumns / 500);
    CHECK(error_of(gptq, w, x, kColumns) < 0.25 * error_of(nearest, w, x, kColumns));
}

TEST_CASE("the scale of a group is that of least weighted square error among 36") {
    std::mt19937 random(4);
    std::uniform_real_distribution<float> number(-1, 1);
    std::int64_t moved = 0;
    for (int group = 0; group < 200; ++group) {
        std::vector<float> values(128), weights(128);
        for (float& value : values) value = number(random);
        for (float& weight : weights) weight = std::exp(6 * number(random));
        values[0] = 3;  // an outlier, which clipping gives up where its weight is small
        const auto error_of_scale = [&](Bf16 scale, bool weighted) {
            double error = 0;
            for (std::size_t k = 0; k < values.size(); ++k) {
                const double s = static_cast<double>(scale), value = static_cast<double>(values[k]);
                const double off = std::clamp(std::nearbyint(value / s), -8.0, 7.0) * s - value;
                error += (weighted ? static_cast<double>(weights[k]) : 1.0) * off * off;
            }
            return error;
        };
        for (const bool weighted : {false, true}) {
            const Bf16 found = weighted ? int4_scale_of(values, weights) : int4_scale_of(values);
            double least = std::numeric_limits<double>::infinity();
            for (int i = 0; i < 36; ++i)
                least = std::min(least, error_of_scale(Bf16((1 - 0.02f * static_cast<float>(i)) * 3 / 7), weighted));
            CHECK(error_of_scale(found, weighted) <= least * (1 + 1e-14));  // of sums in another order
        }
        moved += int4_scale_of(values, weights).bits != int4_scale_of(values).bits ? 1 : 0;
    }
    CHECK(moved > 100);
}

TEST_CASE("without anything between columns that count alike, GPTQ rounds to nearest") {
    constexpr std::int64_t kRows = 9, kColumns = 256;
    const std::vector<float> w = random_inputs(kRows, kColumns, 2);
    std::vector<float> h(static_cast<std::size_t>(kColumns * kColumns));
    for (std::int64_t i = 0; i < kColumns; ++i) h[static_cast<std::size_t>(i * kColumns + i)] = 3;
    Rounded gptq(kRows, kColumns), nearest(kRows, kColumns);
    std::vector<float> changed = w;
    gptq_rows(changed, kColumns, inverse_factor(h, kColumns), gptq.words, gptq.scales);
    for (std::int64_t row = 0; row < kRows; ++row)
        quantize_row(std::span(w).subspan(static_cast<std::size_t>(row * kColumns), kColumns),
                     std::span(nearest.words).subspan(static_cast<std::size_t>(row * kColumns / 8), kColumns / 8),
                     std::span(nearest.scales).subspan(static_cast<std::size_t>(row * kColumns / 128), kColumns / 128));
    CHECK(gptq.words == nearest.words);
    CHECK(std::equal(gptq.scales.begin(), gptq.scales.end(), nearest.scales.begin(),
                     [](Bf16 a, Bf16 b) { return a.bits == b.bits; }));
}
