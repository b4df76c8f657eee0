#include "src/quantize/inverse_factor.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/error.h"

namespace coda {

namespace {

constexpr std::int64_t kPanel = 64;     // rows or columns that are eliminated together
constexpr std::int64_t kColumns = 256;  // of a thread's share of a panel of rows

/// An upper triangle in double.
class Triangle {
  public:
    explicit Triangle(std::int64_t n) : n_(n), values_(static_cast<std::size_t>(n * n)) {}
    double* row(std::int64_t i) { return values_.data() + i * n_; }
    std::int64_t size() const { return n_; }

  private:
    std::int64_t n_;
    std::vector<double> values_;
};

double dot(const double* a, const double* b, std::int64_t first, std::int64_t end) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t k = first; k < end; ++k) sum += a[k] * b[k];
    return sum;
}

/// H becomes R, upper triangular, with H = R Rᵀ: columns from the last to the first, a panel of them at a time.
void factorise(Triangle& h) {
    const std::int64_t n = h.size();
    for (std::int64_t end = n; end > 0; end -= std::min(kPanel, end)) {
        const std::int64_t begin = std::max<std::int64_t>(0, end - kPanel);
#pragma omp parallel for schedule(dynamic, 8)
        for (std::int64_t i = 0; i < end; ++i)
            for (std::int64_t j = std::max(i, begin); j < end; ++j) h.row(i)[j] -= dot(h.row(i), h.row(j), end, n);
        for (std::int64_t j = end - 1; j >= begin; --j) {
            const double square = h.row(j)[j] - dot(h.row(j), h.row(j), j + 1, end);
            require(square > 0,
                    "the products of a matrix's inputs have no inverse: the calibration gave numbers that "
                    "are not finite");
            h.row(j)[j] = std::sqrt(square);
            for (std::int64_t i = begin; i < j; ++i)
                h.row(i)[j] = (h.row(i)[j] - dot(h.row(i), h.row(j), j + 1, end)) / h.row(j)[j];
        }
#pragma omp parallel for schedule(dynamic, 8)
        for (std::int64_t i = 0; i < begin; ++i)
            for (std::int64_t j = end - 1; j >= begin; --j)
                h.row(i)[j] = (h.row(i)[j] - dot(h.row(i), h.row(j), j + 1, end)) / h.row(j)[j];
    }
}

/// R becomes its inverse: rows from the last to the first, a panel of them at a time.
void invert(Triangle& r) {
    const std::int64_t n = r.size();
    for (std::int64_t end = n; end > 0; end -= std::min(kPanel, end)) {
        const std::int64_t begin = std::max<std::int64_t>(0, end - kPanel), rows = end - begin;
        // What is behind the panel of R, before it is overwritten by the same columns of the inverse.
        std::vector<double> behind(static_cast<std::size_t>(rows * n));
        for (std::int64_t i = begin; i < end; ++i) std::copy_n(r.row(i), n, behind.data() + (i - begin) * n);
        const auto old = [&](std::int64_t i, std::int64_t k) {
            return behind[static_cast<std::size_t>((i - begin) * n + k)];
        };
#pragma omp parallel for schedule(dynamic)
        for (std::int64_t first = begin; first < n; first += kColumns) {
            const std::int64_t last = std::min(first + kColumns, n);
            for (std::int64_t i = begin; i < end; ++i)
                for (std::int64_t j = std::max(first, i); j < last; ++j) r.row(i)[j] = j == i ? 1 : 0;
            const auto subtract = [&](std::int64_t i, std::int64_t k) {
                const double factor = old(i, k);
                double* const to = r.row(i);
                const double* const from = r.row(k);
#pragma omp simd
                for (std::int64_t j = std::max(first, k); j < last; ++j) to[j] -= factor * from[j];
            };
            for (std::int64_t k = end; k < last; ++k)
                for (std::int64_t i = begin; i < end; ++i) subtract(i, k);
            for (std::int64_t i = end - 1; i >= begin; --i) {
                for (std::int64_t k = i + 1; k < end; ++k) subtract(i, k);
                const double diagonal = old(i, i);
                for (std::int64_t j = std::max(first, i); j < last; ++j) r.row(i)[j] /= diagonal;
            }
        }
    }
}

}  // namespace

std::vector<float> inverse_factor(std::span<const float> h, std::int64_t n, double share) {
    Triangle triangle(n);
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(h[static_cast<std::size_t>(i * n + i)]);
    mean /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
        const float* const from = h.data() + i * n;
        for (std::int64_t j = i; j < n; ++j) triangle.row(i)[j] = static_cast<double>(from[j]);
        if (from[i] == 0) triangle.row(i)[i] = 1;
        triangle.row(i)[i] += share * mean;
    }
    factorise(triangle);
    invert(triangle);
    std::vector<float> factor(static_cast<std::size_t>(n * n));
    for (std::int64_t i = 0; i < n; ++i)
        std::transform(triangle.row(i) + i, triangle.row(i) + n, factor.begin() + i * n + i,
                       [](double value) { return static_cast<float>(value); });
    return factor;
}

}  // namespace coda
