// What checks of FP8 copies share: the transposed copy read as rows, and amax. Device and host.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

inline float scalar_of(const void* device) {
    float value = 0;
    CUDA_CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

/// What is stored of a value in f8e4m3, before it is rounded.
__device__ inline float finite(float value) { return fminf(fmaxf(value, -448.0f), 448.0f); }

/// A transposed copy, read as the rows from `first` on of the matrix that it was made from.
struct Untransposed {
    Tensor copy;
    std::int64_t first;
    __device__ float operator()(std::int64_t row, std::int64_t column) const {
        return copy(column, paired_place(first + row));
    }
};

/// Compares an amax with the largest magnitude that was expected, or was there before.
inline void compare_amax(OpCheck& check, const char* operand, const View& amax, double largest) {
    largest = std::max<double>(largest, scalar_of(check.captured(operand)));
    const double difference = scalar_of(check.memory().address(amax)) - largest;
    check.add(operand, {difference * difference, largest * largest, std::abs(difference), largest});
}

/// Compares codes by rows and transposed codes with the codes of value(row, column), as QuantiseF8 rounds it, and amax
/// with the largest |value|.
template <class Value>
void compare_rounding(OpCheck& check, const RoundedNames& names, const Rounded& codes, DType format, std::int64_t rows,
                      std::int64_t columns, const Value& value) {
    const Tensor scale = live(check, codes.scale);
    const bool wide = format == DType::f8e5m2;
    const auto code = [=] __device__(std::int64_t row, std::int64_t column) {
        const float scaled = scale[0] * value(row, column);
        return wide ? static_cast<float>(F8E5M2(scaled)) : static_cast<float>(F8E4M3(scaled));
    };
    if (codes.rows) compare(check, names.rows, rows, columns, live(check, codes.rows), code);
    if (codes.columns) {
        const Tensor copy = live(check, codes.columns);
        const bool paired = codes.columns.order == ColumnOrder::paired;
        const auto transposed = [=] __device__(std::int64_t row, std::int64_t column) {
            return copy(column, paired ? paired_place(row) : row);
        };
        compare(check, names.columns, rows, columns, transposed, code);
    }
    if (!codes.amax) return;
    const double largest = sums_over(check, rows, columns, value, value).largest_expected;
    const Tensor old = overwritten(check, names.amax, codes.amax, 0);
    compare(check, names.amax, 1, 1, live(check, codes.amax),
            [=] __device__(std::int64_t, std::int64_t) { return fmax(static_cast<double>(old[0]), largest); });
}

}  // namespace coda::oracle
