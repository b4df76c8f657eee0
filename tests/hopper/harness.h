// What the tests on a Hopper GPU share: whether there is one, host copies of device buffers, and their differences.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/core/f8.h"
#include "kernels/hopper/sm90/check.h"
#include "tests/catch.h"

namespace coda::test {

inline bool has_hopper() {
    int devices = 0;
    cudaDeviceProp properties{};
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
        cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
        WARN("skipped: no Hopper GPU");
        return false;
    }
    return true;
}

template <class Real>
double rms(const std::vector<Real>& values) {
    double sum = 0;
    for (const Real value : values) sum += double{value} * value;
    return std::sqrt(sum / static_cast<double>(values.size()));
}

/// Of a's differences from b, in units of b's.
template <class Real>
double relative_rms(const std::vector<Real>& a, const std::vector<Real>& b) {
    std::vector<Real> apart;
    for (std::size_t i = 0; i < b.size(); ++i) apart.push_back(a[i] - b[i]);
    return rms(apart) / rms(b);
}

using Bytes = std::vector<std::vector<std::byte>>;

inline Bytes download(const std::vector<cases::Buffer>& buffers, const Memory& memory) {
    Bytes host;
    for (const cases::Buffer& buffer : buffers) {
        host.emplace_back(static_cast<std::size_t>(buffer.view.span_bytes()));
        CUDA_CHECK(
            cudaMemcpy(host.back().data(), memory.address(buffer.view), host.back().size(), cudaMemcpyDeviceToHost));
    }
    return host;
}

inline Memory memory_of(Bytes& bytes) {
    std::vector<std::byte*> bases;
    for (auto& buffer : bytes) bases.push_back(buffer.data());
    return Memory(bases);
}

inline double element(const std::vector<std::byte>& bytes, const View& view, std::int64_t row, std::int64_t column) {
    const std::byte* at = bytes.data() + (row * view.ld + column) * size_of(view.dtype);
    if (view.dtype == DType::bf16) {
        Bf16 value;
        std::memcpy(&value, at, sizeof value);
        return static_cast<double>(static_cast<float>(value));
    }
    if (is_f8(view.dtype))
        return with_f8(view.dtype, [&](auto value) {
            std::memcpy(&value, at, sizeof value);
            return static_cast<double>(static_cast<float>(value));
        });
    if (view.dtype == DType::f64) {
        double value = 0;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
}
/// The element in the buffer that the view is in.
inline double element(const Bytes& buffers, const View& view, std::int64_t row, std::int64_t column) {
    return element(buffers[static_cast<std::size_t>(view.buffer)], view, row, column);
}

struct Difference {
    double rms = 0;      // relative to the expected values' RMS
    double largest = 0;  // relative to the largest expected magnitude
};

/// Elements that neither side wrote (poison, NaN on both) are left out.
inline Difference difference(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                             const View& view) {
    double squares = 0, error = 0, magnitude = 0, largest = 0;
    for (std::int64_t row = 0; row < view.rows; ++row)
        for (std::int64_t column = 0; column < view.cols; ++column) {
            const double want = element(expected, view, row, column);
            const double have = element(got, view, row, column);
            if (std::isnan(want) && std::isnan(have)) continue;
            if (std::isnan(have) || std::isnan(want)) return {1e30, 1e30};
            squares += want * want;
            error += (have - want) * (have - want);
            magnitude = std::max(magnitude, std::fabs(want));
            largest = std::max(largest, std::fabs(have - want));
        }
    if (squares == 0) return {std::sqrt(error), largest};
    return {std::sqrt(error / squares), largest / magnitude};
}

/// For elements whose sizes are many powers of two apart: differences relative to size(row, column, expected).
template <class Size>
Difference difference_of_each(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                              const View& view, const Size& size) {
    double squares = 0, largest = 0;
    for (std::int64_t row = 0; row < view.rows; ++row)
        for (std::int64_t column = 0; column < view.cols; ++column) {
            const double want = element(expected, view, row, column);
            const double have = element(got, view, row, column);
            if (have == want) continue;
            const double off = std::fabs(have - want) / size(row, column, want);
            if (!std::isfinite(off)) return {1e30, 1e30};
            squares += off * off;
            largest = std::max(largest, off);
        }
    return {std::sqrt(squares / static_cast<double>(view.count())), largest};
}

}  // namespace coda::test
