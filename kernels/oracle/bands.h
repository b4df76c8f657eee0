// Cuts a check into bands of rows whose intermediate results fit the oracle's work space. Host-only.
#pragma once

#include <cstdint>
#include <vector>

namespace coda::oracle {

struct Band {
    std::int64_t first = 0, rows = 0;
};

/// Rows [0, rows) in order, in as few bands as possible. Each band needs row_bytes per row, and at most `budget` bytes.
/// All but the last have a multiple of `unit` rows. Throws Error where not even one unit (or all rows, if they are
/// fewer) fits.
std::vector<Band> bands(std::int64_t rows, std::int64_t row_bytes, std::int64_t unit, std::int64_t budget);

}  // namespace coda::oracle
