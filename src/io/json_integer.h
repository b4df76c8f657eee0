// Integers of JSON files that other hands may have written.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/core/error.h"

namespace coda {

/// Throws Error "WHAT is 1e+30, not an integer of 64 bits". nlohmann's get() would convert a number of any size, which
/// is undefined where it does not fit.
inline std::int64_t integer_of(const nlohmann::json& value, std::string_view what) {
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}
                          : value.is_number_integer();
    require(fits, what, " is ", value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
            ", not an integer of 64 bits");
    return value.get<std::int64_t>();
}

}  // namespace coda
