#include "kernels/oracle/gemm_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/error.h"

namespace coda::oracle {

const std::byte* GemmCheck::captured(const char* operand) const {
    const auto found = before_.copies.find(operand);
    return found == before_.copies.end() ? nullptr : found->second.get();
}

void GemmCheck::by_rows(const View& a, hopper::Major major_a, const View& b, hopper::Major major_b, std::int64_t unit,
                        const std::function<void(const float*, std::int64_t, std::int64_t)>& band) {
    const bool k_major = major_a == hopper::Major::k;
    const std::int64_t m = k_major ? a.rows : a.cols, k = k_major ? a.cols : a.rows;
    const std::int64_t n = major_b == hopper::Major::k ? b.rows : b.cols;
    const std::int64_t fit = buffers_.product_bytes / (n * size_of(DType::f32)) / unit * unit;
    require(fit > 0, "oracle: ", unit, " rows of ", n, " columns exceed the ", buffers_.product_bytes,
            " bytes of a band");
    for (std::int64_t first = 0; first < m; first += fit) {
        const std::int64_t rows = std::min(fit, m - first);
        Product product;
        product.a = memory_.address(a) + first * (k_major ? a.ld : 1) * size_of(a.dtype);
        product.b = memory_.address(b);
        product.out = buffers_.product;
        product.m = rows;
        product.n = n;
        product.k = k;
        product.lda = a.ld;
        product.ldb = b.ld;
        product.major_a = major_a;
        product.major_b = major_b;
        cublas_.product(product, 1)(stream_);
        band(buffers_.product, first, rows);
    }
}

void GemmCheck::add(const char* operand, const ErrorSums& sums) {
    auto found = std::find_if(sums_.begin(), sums_.end(), [&](const auto& entry) { return entry.first == operand; });
    if (found == sums_.end()) found = sums_.insert(sums_.end(), {operand, ErrorSums{}});
    ErrorSums& total = found->second;
    total.difference += sums.difference;
    total.expected += sums.expected;
    total.largest_difference = std::max(total.largest_difference, sums.largest_difference);
    total.largest_expected = std::max(total.largest_expected, sums.largest_expected);
}

std::vector<OperandError> GemmCheck::results() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<OperandError> errors;
    for (const auto& [operand, sums] : sums_) {
        OperandError error{operand, 0, 0};
        if (!std::isfinite(sums.difference) || !std::isfinite(sums.expected)) {
            error.rms = error.largest = kInfinity;
        } else if (sums.difference > 0) {
            error.rms = sums.expected > 0 ? std::sqrt(sums.difference / sums.expected) : kInfinity;
            error.largest = sums.largest_expected > 0 ? sums.largest_difference / sums.largest_expected : kInfinity;
        }
        errors.push_back(error);
    }
    return errors;
}

}  // namespace coda::oracle
