// Results as a message shows them.
#pragma once

#include <cmath>
#include <limits>

namespace coda {

/// A NaN without the sign that an operation happened to give it: "-nan" reads like a number.
inline double unsigned_nan(double value) {
    return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace coda
