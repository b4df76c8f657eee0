// Whole-number arithmetic of shapes.
#pragma once

#include <cstdint>

namespace coda {

constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return ceil_div(value, to) * to; }

}  // namespace coda
