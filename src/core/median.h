// The median of times and of other numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace coda {

/// For an even number of values, the mean of the middle two. NaN of no values.
inline double median_of(std::vector<double> values) {
    if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace coda
