// What is known of each row of a matrix without a second look at its elements.
#pragma once

#include <cstdint>

namespace coda {

/// The statistics of one row. Executors write arrays of it.
struct RowStats {
    double amax = 0;         // largest magnitude; NaN where an element is NaN
    double square = 0;       // sum of squares
    std::int64_t zeros = 0;  // elements that are +0 or -0
};

}  // namespace coda
